"""English numbers against a table written by hand and against a reader of words that knows nothing of the writer."""

from glassformer.data.synthetic import spell

UNDER_A_HUNDRED = """
zero one two three four five six seven eight nine
ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty twenty-one twenty-two twenty-three twenty-four twenty-five twenty-six twenty-seven twenty-eight twenty-nine
thirty thirty-one thirty-two thirty-three thirty-four thirty-five thirty-six thirty-seven thirty-eight thirty-nine
forty forty-one forty-two forty-three forty-four forty-five forty-six forty-seven forty-eight forty-nine
fifty fifty-one fifty-two fifty-three fifty-four fifty-five fifty-six fifty-seven fifty-eight fifty-nine
sixty sixty-one sixty-two sixty-three sixty-four sixty-five sixty-six sixty-seven sixty-eight sixty-nine
seventy seventy-one seventy-two seventy-three seventy-four seventy-five seventy-six seventy-seven seventy-eight
seventy-nine
eighty eighty-one eighty-two eighty-three eighty-four eighty-five eighty-six eighty-seven eighty-eight eighty-nine
ninety ninety-one ninety-two ninety-three ninety-four ninety-five ninety-six ninety-seven ninety-eight ninety-nine
"""

LARGER = """
100 one hundred
101 one hundred one
110 one hundred ten
199 one hundred ninety-nine
200 two hundred
313 three hundred thirteen
999 nine hundred ninety-nine
1000 one thousand
1001 one thousand one
1010 one thousand ten
1100 one thousand one hundred
1999 one thousand nine hundred ninety-nine
2020 two thousand twenty
7007 seven thousand seven
10000 ten thousand
12345 twelve thousand three hundred forty-five
20020 twenty thousand twenty
90909 ninety thousand nine hundred nine
99999 ninety-nine thousand nine hundred ninety-nine
100000 one hundred thousand
100001 one hundred thousand one
101101 one hundred one thousand one hundred one
111111 one hundred eleven thousand one hundred eleven
123456 one hundred twenty-three thousand four hundred fifty-six
600019 six hundred thousand nineteen
900009 nine hundred thousand nine
987654 nine hundred eighty-seven thousand six hundred fifty-four
999999 nine hundred ninety-nine thousand nine hundred ninety-nine
"""


def test_every_number_of_the_table():
    small = UNDER_A_HUNDRED.split()
    assert len(small) == 100
    known = dict(enumerate(small))
    for line in LARGER.split("\n")[1:-1]:
        digits, words = line.split(" ", 1)
        known[int(digits)] = words
    assert len(known) > 125
    assert {number: spell(number) for number in known} == known


def value(words: str) -> int:
    """The number that English words name, read from left to right; it shares nothing with `spell`."""
    small = {word: number for number, word in enumerate(UNDER_A_HUNDRED.split()) if "-" not in word}
    thousands, rest = 0, 0
    for word in words.replace("-", " ").split():
        if word == "hundred":
            rest *= 100
        elif word == "thousand":
            thousands, rest = rest * 1000, 0
        else:
            rest += small[word]
    return thousands + rest


def test_words_are_read_back_as_the_number():
    for number in [*range(12_000), *range(12_000, 1_000_000, 89), *range(999_000, 1_000_000)]:
        words = spell(number)
        assert value(words) == number
        assert "zero" not in words or number == 0
        assert words == " ".join(words.split())
