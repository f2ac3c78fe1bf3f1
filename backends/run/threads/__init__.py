"""Which threads run a call, and how they wait."""
