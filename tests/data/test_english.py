"""English numbers against a table written by hand and against a reader of words that knows nothing of the writer."""

from __future__ import annotations

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
109 one hundred nine
110 one hundred ten
111 one hundred eleven
115 one hundred fifteen
119 one hundred nineteen
120 one hundred twenty
121 one hundred twenty-one
150 one hundred fifty
199 one hundred ninety-nine
200 two hundred
202 two hundred two
234 two hundred thirty-four
300 three hundred
313 three hundred thirteen
340 three hundred forty
365 three hundred sixty-five
400 four hundred
404 four hundred four
418 four hundred eighteen
499 four hundred ninety-nine
500 five hundred
512 five hundred twelve
555 five hundred fifty-five
600 six hundred
614 six hundred fourteen
666 six hundred sixty-six
700 seven hundred
717 seven hundred seventeen
770 seven hundred seventy
800 eight hundred
808 eight hundred eight
880 eight hundred eighty
900 nine hundred
911 nine hundred eleven
990 nine hundred ninety
999 nine hundred ninety-nine
1000 one thousand
1001 one thousand one
1010 one thousand ten
1011 one thousand eleven
1021 one thousand twenty-one
1066 one thousand sixty-six
1100 one thousand one hundred
1101 one thousand one hundred one
1110 one thousand one hundred ten
1492 one thousand four hundred ninety-two
1729 one thousand seven hundred twenty-nine
1900 one thousand nine hundred
1984 one thousand nine hundred eighty-four
1999 one thousand nine hundred ninety-nine
2000 two thousand
2001 two thousand one
2017 two thousand seventeen
2020 two thousand twenty
3003 three thousand three
4096 four thousand ninety-six
4444 four thousand four hundred forty-four
5050 five thousand fifty
6174 six thousand one hundred seventy-four
7007 seven thousand seven
8192 eight thousand one hundred ninety-two
9000 nine thousand
9090 nine thousand ninety
9999 nine thousand nine hundred ninety-nine
10000 ten thousand
10001 ten thousand one
10010 ten thousand ten
10100 ten thousand one hundred
11000 eleven thousand
11011 eleven thousand eleven
12012 twelve thousand twelve
12345 twelve thousand three hundred forty-five
13013 thirteen thousand thirteen
15800 fifteen thousand eight hundred
19019 nineteen thousand nineteen
20000 twenty thousand
20020 twenty thousand twenty
21021 twenty-one thousand twenty-one
30000 thirty thousand
31415 thirty-one thousand four hundred fifteen
40004 forty thousand four
44400 forty-four thousand four hundred
50505 fifty thousand five hundred five
65536 sixty-five thousand five hundred thirty-six
77007 seventy-seven thousand seven
80080 eighty thousand eighty
90909 ninety thousand nine hundred nine
99999 ninety-nine thousand nine hundred ninety-nine
100000 one hundred thousand
100001 one hundred thousand one
100010 one hundred thousand ten
100100 one hundred thousand one hundred
101000 one hundred one thousand
101101 one hundred one thousand one hundred one
110000 one hundred ten thousand
110011 one hundred ten thousand eleven
111111 one hundred eleven thousand one hundred eleven
123456 one hundred twenty-three thousand four hundred fifty-six
200000 two hundred thousand
200002 two hundred thousand two
299792 two hundred ninety-nine thousand seven hundred ninety-two
304050 three hundred four thousand fifty
400040 four hundred thousand forty
450000 four hundred fifty thousand
500500 five hundred thousand five hundred
512000 five hundred twelve thousand
600019 six hundred thousand nineteen
654321 six hundred fifty-four thousand three hundred twenty-one
700700 seven hundred thousand seven hundred
777777 seven hundred seventy-seven thousand seven hundred seventy-seven
808080 eight hundred eight thousand eighty
900000 nine hundred thousand
900009 nine hundred thousand nine
909090 nine hundred nine thousand ninety
987654 nine hundred eighty-seven thousand six hundred fifty-four
990099 nine hundred ninety thousand ninety-nine
999000 nine hundred ninety-nine thousand
999900 nine hundred ninety-nine thousand nine hundred
999990 nine hundred ninety-nine thousand nine hundred ninety
999999 nine hundred ninety-nine thousand nine hundred ninety-nine
"""


def test_every_number_of_the_table() -> None:
    small = UNDER_A_HUNDRED.split()
    assert len(small) == 100
    known = dict(enumerate(small))
    for line in LARGER.split("\n")[1:-1]:
        digits, words = line.split(" ", 1)
        known[int(digits)] = words
    assert len(known) > 200
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


def test_words_are_read_back_as_the_number() -> None:
    for number in [*range(12_000), *range(12_000, 1_000_000, 89), *range(999_000, 1_000_000)]:
        words = spell(number)
        assert value(words) == number
        assert "zero" not in words or number == 0
        assert words == " ".join(words.split())
