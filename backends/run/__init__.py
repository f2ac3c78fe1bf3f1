"""A call: arrays in, a module run on a device, arrays out."""
