"""The tagger's text and the rules that tag it.

The text is the opening of Lewis Carroll's "Alice's Adventures in Wonderland" (1865, in the public
domain), a little shortened and in lower case. The tags look like parts of speech but come from
a handful of handwritten rules, right below; nobody annotated the text by hand. Some rules need
context: a word in -ing is a noun after a preposition and a verb elsewhere, `her` and `that` depend
on the word that follows. So a network has to look to both sides to learn them.
"""

TEXT = """
alice was beginning to get very tired of sitting by her sister on the bank , and of having nothing
to do : once or twice she had peeped into the book her sister was reading , but it had no pictures
or conversations in it , and what is the use of a book , thought alice , without pictures or
conversations ? so she was considering in her own mind , as well as she could , for the hot day
made her feel very sleepy and stupid , whether the pleasure of making a daisy-chain would be worth
the trouble of getting up and picking the daisies , when suddenly a white rabbit with pink eyes ran
close by her . there was nothing so very remarkable in that ; nor did alice think it so very much
out of the way to hear the rabbit say to itself , oh dear ! oh dear ! i shall be late ! but when
the rabbit actually took a watch out of its waistcoat-pocket , and looked at it , and then hurried
on , alice started to her feet , for it flashed across her mind that she had never before seen a
rabbit with either a waistcoat-pocket , or a watch to take out of it , and burning with curiosity ,
she ran across the field after it , and fortunately was just in time to see it pop down a large
rabbit-hole under the hedge . in another moment down went alice after it , never once considering
how in the world she was to get out again . the rabbit-hole went straight on like a tunnel for some
way , and then dipped suddenly down , so suddenly that alice had not a moment to think about
stopping herself before she found herself falling down a very deep well .
"""

TAGS = ("punct", "det", "pron", "adp", "conj", "adv", "verb", "adj", "noun")

CLOSED = {
    "punct": ", : ? . ; !",
    "det": "a the no its some another either",
    "pron": "she it her i what herself itself nothing there",
    "adp": "of by on into in without for with across after under at like about to down",
    "conj": "and or but as when whether nor if so",
    "adv": "very once twice well never before again then just close how not out up much oh",
    "verb": "was is had be get do did could would shall made feel think hear say took ran went "
    "found see take seen pop peeped thought",
    "adj": "own hot sleepy stupid worth white pink remarkable dear late large straight deep tired",
}
TAG_OF = {word: tag for tag, words in CLOSED.items() for word in words.split()}


def tag(words: list[str]) -> list[str]:
    """Tag every word by the rules."""
    return [_tag(words, at) for at in range(len(words))]


def _tag(words: list[str], at: int) -> str:
    word = words[at]
    before = words[at - 1] if at > 0 else "."
    after = words[at + 1] if at + 1 < len(words) else "."
    if word == "that":  # "in that ;" stands for something, "that she had" joins
        return "pron" if TAG_OF.get(after) == "punct" else "conj"
    if word == "her":  # "her sister" determines, "by her ." stands for somebody
        return "pron" if TAG_OF.get(after, "noun") in ("punct", "verb") else "det"
    if word in TAG_OF:
        return TAG_OF[word]
    if word.endswith("ly"):
        return "adv"
    if word.endswith("ing"):  # "of sitting", but "was reading"
        return "noun" if TAG_OF.get(before) == "adp" else "verb"
    if word.endswith("ed"):
        return "verb"
    return "noun"
