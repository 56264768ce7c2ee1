"""English as it is spoken: what is written on the left is said as on the right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.wer import total, word_errors
from pipeline.engines.stt import moonshine
from pipeline.engines.tts import piper
from pipeline.spoken import speakable
from pipeline.work import NEVER
from tests.support.recordings import synthesize

pytestmark = pytest.mark.engines

NUMBERS = """
0 => zero
7 => seven
13 => thirteen
21 => twenty-one
100 => one hundred
105 => one hundred five
1,234 => one thousand two hundred thirty-four
1,234,567 => one million two hundred thirty-four thousand five hundred sixty-seven
10 000 people => ten thousand people
There are 8 planets. => There are eight planets.
3.14 => three point one four
0.5 => zero point five
.5 => zero point five
1,000.75 => one thousand point seven five
-5 => minus five
It was −12.5 outside => It was minus twelve point five outside
7,000,000,000 people => seven billion people
8000000000 people => eight billion people
5 million => five million
10k followers => ten thousand followers
2M views => two million views
1st => first
2nd => second
3rd place => third place
21st century => twenty-first century
the 100th time => the one hundredth time
1,000th => one thousandth
2x faster => two times faster
1.5x => one point five times
007 => zero zero seven
one, two, 3 => one, two, three
(about 5) => about five
1. => one.
I have 2 cats and 1 dog. => I have two cats and one dog.
3 × 10^8 => three times ten to the power of eight
6.02e23 => six point zero two times ten to the power of twenty-three
#1 => number one
No. 5 is alive => number five is alive
№ 7 => number seven
18+ => eighteen plus
1000001 => one million one
12th => twelfth
1,000,003rd => one million third
"""

YEARS_AND_DATES = """
The 1960s–70s => The nineteen sixties to seventies
The 2nd of May => The second of May
Sunday, 3/4 => Sunday, March fourth
in 1999 => in nineteen ninety-nine
in 2007 => in two thousand seven
since 2026 => since twenty twenty-six
It was 1805. => It was eighteen oh five.
in 1900 => in nineteen hundred
in 2000 => in two thousand
in 2010 => in twenty ten
1500 people came => one thousand five hundred people came
2048 bytes => two thousand forty-eight bytes
the 1990s => the nineteen nineties
the '90s => the nineties
the 80s => the eighties
in her 30s => in her thirties
the 2000s => the two thousands
1914-1918 => nineteen fourteen to nineteen eighteen
1939–45 => nineteen thirty-nine to nineteen forty-five
44 BC => forty-four B C
2026-11-21 => November twenty-first, twenty twenty-six
Nov 21, 2026 => November twenty-first, twenty twenty-six
Nov. 21 => November twenty-first
November 21st, 2026, was a Saturday => November twenty-first, twenty twenty-six, was a Saturday
21 November 2026 => the twenty-first of November, twenty twenty-six
on 3 May => on the third of May
on the 4th of July => on the fourth of July
11/21/2026 => November twenty-first, twenty twenty-six
21/11/2026 => November twenty-first, twenty twenty-six
21.11.2026 => November twenty-first, twenty twenty-six
on 5/7 => on May seventh
from 1990s-2000s pop => from nineteen nineties to two thousands pop
Jan 28 - Feb 3, 2026 => January twenty-eighth to February third, twenty twenty-six
28 January–3 February => the twenty-eighth of January to the third of February
the 16th-18th centuries => the sixteenth to eighteenth centuries
21/11 => November twenty-first
9/11 => nine eleven
March 3-5 => March third to fifth
March 2026 => March twenty twenty-six
Mon, Nov 2 => Monday, November second
Sept 5 => September fifth
You may 5 times => You may five times
2026-11-21T15:45:00Z => November twenty-first, twenty twenty-six, at fifteen forty-five
2026-99-99 => two zero two six, nine nine, nine nine
"""

TIMES = """
7.30 pm => seven thirty P M
3:30 pm => three thirty P M
3:30pm => three thirty P M
at 7 o'clock => at seven o'clock
15:45 => fifteen forty-five
12:00 => twelve o'clock
3:05 => three oh five
3:00 pm => three P M
9 AM => nine A M
9am-5pm => nine A M to five P M
9 a.m. to 5 p.m. => nine A M to five P M.
We meet at 5 p.m. Bring cake. => We meet at five P M. Bring cake.
10:00–11:30 => ten o'clock to eleven thirty
00:15 => twelve fifteen A M
00:00 => midnight
15:00 => three P M
5-6 pm => five to six P M
1:23:45 => one twenty-three forty-five
a 16:9 screen => a sixteen to nine screen
3:1 => three to one
2.5:1 or 1:1,000 => two point five to one or one to one thousand
24/7 => twenty-four seven
at 7:00 - 8:30 pm, 9 - 10:30 => at seven o'clock to eight thirty P M, nine to ten thirty
20:15h, 8:00 h => twenty fifteen, eight o'clock
"""

MONEY = """
$5 => five dollars
$1 => one dollar
$5.20 => five dollars and twenty cents
$0.99 => ninety-nine cents
$0.01 => one cent
$1,234.50 => one thousand two hundred thirty-four dollars and fifty cents
$5.00 => five dollars
$3.5 million => three point five million dollars
$5k => five thousand dollars
$2bn => two billion dollars
a 10x15 cm photo => a ten by fifteen centimeters photo
UTC-5 => UTC minus five
$5 million–$10 million => five million dollars to ten million dollars
US$ 3 million, C$ 20 => three million dollars, twenty dollars
-$5 => minus five dollars
EUR 3 => three euros
3 EUR => three euros
3€ => three euros
€1 => one euro
£2.50 => two pounds and fifty pence
¥500 => five hundred yen
$5-10 => five to ten dollars
$20/month => twenty dollars per month
US$40 => forty dollars
$20 USD or EUR €5 => twenty dollars or five euros
50¢ => fifty cents
It costs $5, or so. => It costs five dollars, or so.
"""

GROUPS = """
₹1,00,000 => one lakh rupees
12,34,56,789 => twelve crore thirty-four lakh fifty-six thousand seven hundred eighty-nine
1,00,001 => one lakh one
₹12,34,567.50 => twelve lakh thirty-four thousand five hundred sixty-seven rupees and fifty paise
Rs. 5,000 => five thousand rupees
Rs 2.5 lakh => two point five lakh rupees
rs.500/- => five hundred rupees
₹3 crore => three crore rupees
₹5L and ₹3Cr => five lakh rupees and three crore rupees
INR 10-20 lakh => ten to twenty lakh rupees
500 Rs => five hundred rupees
₹5 lakh crore => five lakh crore rupees
-₹500 and ₹-500 => minus five hundred rupees and minus five hundred rupees
the 1,00,000th => the one hundred thousandth
5 lakh => five lakh
1'000'000 francs => one million francs
1’234.50 => one thousand two hundred thirty-four point five zero
1\u00a0000\u00a0000 km => one million kilometers
1\u202f234 => one thousand two hundred thirty-four
$1 000 000 => one million dollars
10 000 km => ten thousand kilometers
"""

FORMULAS = r"""
$E = mc^2$ => E equals m c squared
If $x_1 < x_2$ then stop. => If x one is less than x two then stop.
Solve $2x + 3 = 7$ for $x$. => Solve two x plus three equals seven for x.
$n \geq 8$ and $x \leq 5$ => n is at least eight and x is at most five
$\frac{1}{2}$ or \frac{3}{4} => one half or three quarters
\(\frac{a+b}{c}\) => a plus b, over c
$\frac12$ of $50\%$ => one half of fifty percent
$\frac{-b \pm \sqrt{b^2}}{2a}$ => minus b plus or minus the square root of b squared, over two a
\[ \int_0^1 x^2 \, dx = 2 \] => the integral from zero to one of x squared d x equals two
$$\sum_{i=1}^{n} i$$ => the sum from i equals one to n of i
\sqrt{x} and $\sqrt[3]{27}$ => the square root of x and the cube root of twenty-seven
$x^{10}$, $10^{-3}$, $x^3$ => x to the power of ten, ten to the power of minus three, x cubed
$\alpha + \beta \approx \pi$ => alpha plus beta is about pi
$a \times b \cdot c$ => a times b times c
$f(x) = 2(x+1)$ => f of x equals two times x plus one
$f'(x)$ and $\sin^2 x$ => f prime of x and sine squared of x
$|x| = 5$ => the absolute value of x, equals five
$P(A|B)$ => P of A given B
$9.81\,\text{m/s}^2$ => nine point eight one meters per second squared
$20^\circ\text{C}$ => twenty degrees Celsius
$\text{if } x \in \mathbb{R}$ => if x in R
$\foo + 1$ => foo plus one
\boxed{42} => forty-two
$\left\lfloor x \right\rfloor = 2$ => x equals two
the $n$th term => the nth term
$\sqrt[3]{27} = 3$ => the cube root of twenty-seven equals three
$\int_0^1 x \, dx$ is $ x = 5 $ => the integral from zero to one of x d x is x equals five
$O(n^2)$ and $T(n-1)$ => O of n squared and T of n minus one
$\ce{H2O}$ => H two O
\begin{align} x &= 1 \\ y &= 2 \end{align} => x equals one, y equals two
$$\begin{pmatrix}a & b \\ c & d\end{pmatrix}$$ => a b, c d
$$\begin{array}{cc}a & b\end{array}$$ => a b
$\langle u, v \rangle$ => u, v
If $n is even, and $5 => If n is even, and five dollars
5 $ and 6 $ = 11 $ => five dollars and six dollars equals eleven dollars
$12$ and $1,000$ => twelve and one thousand
$5 and $10 => five dollars and ten dollars
It costs $5, not $10. => It costs five dollars, not ten dollars.
$1,299.99 => one thousand two hundred ninety-nine dollars and ninety-nine cents
$5M => five million dollars
I have $5, you have 10$. => I have five dollars, you have ten dollars.
$5 or 10$ => five dollars or ten dollars
$5-$10/day => five to ten dollars per day
Let $x = 5$; it costs $5. => Let x equals five; it costs five dollars.
"""

DAYS_AND_SECTIONS = """
Mondays-Fridays, Jan-Mar 2024 => Mondays to Fridays, January to March twenty twenty-four
Mon.–Fri. 8 am–5 pm => Monday to Friday eight A M to five P M
Open Mon-Fri, Sat. 9-12 => Open Monday to Friday, Saturday nine to twelve
Tue/Thu => Tuesday, Thursday
See § 5 and §§ 5-7. => See section five and sections five to seven.
Art. 3, Sec. 4 => article three, section four
12 µg/m³ => twelve micrograms per cubic meter
90 mg/dL => ninety milligrams per deciliter
1 g/cm³ => one gram per cubic centimeter
5 l/100 km => five liters per one hundred kilometers
I said no. I did. => I said no. I did.
"""

UNITS = """
$1,850/mo => one thousand eight hundred fifty dollars per month
Add ¼ tsp and ⅓ lb => Add one quarter teaspoon and one third pound
Drive ~200 km => Drive about two hundred kilometers
1/2 tsp and 1 1/2 lb => one half teaspoon and one and a half pounds
$5 per m², $60/yr => five dollars per square meter, sixty dollars per year
350°F/180°C => three hundred fifty degrees Fahrenheit, one hundred eighty degrees Celsius
2-3x a day => two to three times a day
It takes 1h 30m. => It takes one hour thirty minutes.
2h05m15s, 5m 30s => two hours five minutes fifteen seconds, five minutes thirty seconds
51.5° N, 0.12° W => fifty-one point five degrees north, zero point one two degrees west
"Apollo 11" is 27" wide => Apollo eleven is twenty-seven inches wide
a 12" by 15" frame => a twelve inches by fifteen inches frame
a risk of <1% or <3% => a risk of less than one percent or less than three percent
it is >$5 if x<3 => it is more than five dollars if x is less than three
10cm x 15cm, 4 ft x 8 ft => ten centimeters by fifteen centimeters, four feet by eight feet
5% => five percent
3.5 % => three point five percent
5-10% => five to ten percent
100% of them => one hundred percent of them
5 km => five kilometers
1 km => one kilometer
1.5 km => one point five kilometers
5km => five kilometers
3.5 kg => three point five kilograms
60 km/h => sixty kilometers per hour
20 °C => twenty degrees Celsius
20°C => twenty degrees Celsius
-4 °F => minus four degrees Fahrenheit
a 90° turn => a ninety degrees turn
5' 10" => five foot ten
6'2" => six foot two
12 ft => twelve feet
1 ft => one foot
150 lbs => one hundred fifty pounds
8 oz => eight ounces
250 ml => two hundred fifty milliliters
30 min => thirty minutes
90 s => ninety seconds
100 ms => one hundred milliseconds
2 h => two hours
3-5 km => three to five kilometers
a 5-km run => a five kilometer run
16 GB => sixteen gigabytes
100 Mbps => one hundred megabits per second
3.2 GHz => three point two gigahertz
230 V => two hundred thirty volts
5 kWh => five kilowatt hours
20 m² => twenty square meters
9.8 m/s² => nine point eight meters per second squared
5 mg/kg => five milligrams per kilogram
10 sq ft => ten square feet
2 tbsp => two tablespoons
I am 5 m away. => I am five meters away.
5 in a row => five in a row
3 a day => three a day
70 mph => seventy miles per hour
"""

FRACTIONS_AND_SUMS = """
1/2 => one half
3/4 => three quarters
2/3 => two thirds
5/8 => five eighths
2 1/2 cups => two and a half cups
2½ cups => two and a half cups
½ => one half
1 3/4 => one and three quarters
1/100 => one one hundredth
7/10 => seven out of ten
4/5 stars => four out of five stars
4.5/5 => four point five out of five
f(x) = x² => f of x equals x squared
120/80 => one hundred twenty over eighty
50/50 => fifty fifty
3-5 => three to five
10–12 => ten to twelve
pages 3-5 => pages three to five
They won 3-2. => They won three to two.
2+2=4 => two plus two equals four
2 + 2 = 4 => two plus two equals four
5 - 3 = 2 => five minus three equals two
5-3=2 => five minus three equals two
3 * 4 = 12 => three times four equals twelve
3 × 4 => three times four
3 x 4 => three times four
1920x1080 => one thousand nine hundred twenty by one thousand eighty
Call 911. => Call nine one one.
12 ÷ 4 = 3 => twelve divided by four equals three
12 / 4 => twelve divided by four
x^2 => x squared
x² + y² => x squared plus y squared
2^10 => two to the power of ten
√16 = 4 => the square root of sixteen equals four
x < 5 => x is less than five
a >= b => a is at least b
π ≈ 3.14 => pi is about three point one four
~5 minutes => about five minutes
5 ± 1 => five plus or minus one
2x + 3 = 7 => two x plus three equals seven
y = 5x - 2 => y equals five x minus two
3x - y = 5 and 5 - 3x => three x minus y equals five and five minus three x
2x – 3 = 7 or 9 – 5 = 4 => two x minus three equals seven or nine minus five equals four
x² - 4x - 5 < 10-3+2 => x squared minus four x minus five is less than ten minus three plus two
3 × 10-12 of the 8b – a set => three times ten to twelve of the eight b, a set
y = -12x and 3x faster => y equals minus twelve x and three times faster
10⁻³ and x⁴ => ten to the power of minus three and x to the power of four
10²³ => ten to the power of twenty-three
CO₂ and x₁ => CO two and x one
3.2e-5 m => three point two times ten to the power of minus five meters
1.5e-3 => one point five times ten to the power of minus three
3 - 5 days => three to five days
"""

NAMES_AND_CODES = """
Elizabeth II's son => Elizabeth the second's son
Super Bowl LVIII => Super Bowl fifty-eight
e.g. this => for example this
See, e.g., this one. => See, for example, this one.
i.e. that => that is that
cats, dogs, etc. => cats, dogs, et cetera.
cats, dogs, etc. are fine => cats, dogs, et cetera are fine
cats vs. dogs => cats versus dogs
Dr. Smith is here. => Doctor Smith is here.
Mr. and Mrs. Jones => Mister and Missus Jones
Prof. Oak => Professor Oak
St. Peter => Saint Peter
Main St. is long => Main Street is long
He lives on Main St. Come in. => He lives on Main Street. Come in.
Mt. Everest => Mount Everest
Martin Luther King Jr. was here => Martin Luther King Junior was here
J. S. Bach => J S Bach
the U.S. is big => the U S is big
a Ph.D. student => a P H D student
approx. 5 => approximately five
Rm. 204, Bldg. 3 => room two oh four, building three
Maj. Tom, c/o Bros. Grimm => Major Tom, care of Brothers Grimm
p. 5 => page five
w/ milk => with milk
w/o sugar => without sugar
Henry VIII => Henry the eighth
Henry the VIII => Henry the eighth
Henry VIII was king => Henry the eighth was king
Elizabeth I was queen => Elizabeth I was queen
Pope John Paul II and I => Pope John Paul the second and I
World War II => World War two
Louis XIV => Louis the fourteenth
Chapter IV => Chapter four
See Vol. II and Ch. IV. => See volume two and chapter four.
Fig. III shows it => figure three shows it
No. XII => number twelve
No. I am here. => No. I am here.
No. Xi Jinping did it. => No. Xi Jinping did it.
Elizabeth I am => Elizabeth I am
I am => I am
Call 555-1234 => Call five five five, one two three four
+1 555 123 4567 => plus one, five five five, one two three, four five six seven
(555) 123-4567 => five five five, one two three, four five six seven
800-555-0199 => eight zero zero, five five five, zero one nine nine
Call 800.555.0199 => Call eight zero zero, five five five, zero one nine nine
The code is 4711. => The code is four seven one one.
PIN 1234 => PIN one two three four
room 305 => room three oh five
ZIP code 90210 => ZIP code nine zero two one zero
COVID-19 => COVID nineteen
Python 3.11 => Python three point eleven
version 2.0.1 => version two point zero point one
v1.2 => version one point two
iOS 17.4 => iOS seventeen point four
192.168.1.7 => one hundred ninety-two dot one hundred sixty-eight dot one dot seven
example.com => example dot com
mail bob@example.com now => mail bob at example dot com now
main.py and Node.js => main dot py and Node J S
C++ and C# => C plus plus and C sharp
@reachy => at reachy
#robots => hashtag robots
AT&T => AT and T
salt & pepper => salt and pepper
and/or => and or
he/she => he or she
TCP/IP => TCP IP
GPT-4 => GPT four
R2D2 => R two D two
H2O => H two O
5G => five G
Airbus A320 => Airbus A three twenty
"""

PAUSES = """
Well... okay => Well, okay
Hmm... => Hmm.
word — word => word, word
It is cold - take a coat. => It is cold, take a coat.
a well-known fact => a well-known fact
It is (I think) red. => It is, I think, red.
Wow!!! => Wow!
What?! => What?
He said "yes" twice. => He said yes twice.
don’t => don't
Is it 5? => Is it five?
"""

TABLES = (
    NUMBERS, YEARS_AND_DATES, TIMES, MONEY, GROUPS, FORMULAS, DAYS_AND_SECTIONS, UNITS,
    FRACTIONS_AND_SUMS, NAMES_AND_CODES, PAUSES,
)  # fmt: skip
CASES = [tuple(line.split(" => ")) for table in TABLES for line in table.strip().splitlines()]


def test_the_table_is_long() -> None:
    assert len(set(CASES)) == len(CASES) >= 250


@pytest.mark.parametrize(("written", "said"), CASES)
def test_it_is_said(written: str, said: str) -> None:
    assert speakable(written) == said


HEARD = (
    "The train leaves at 3:30 pm.",
    "It is 20 °C outside and 5 km to the town.",
    "On Nov 21, 2026 we met Dr. Smith.",
    "It costs $5.20, not $1,234.",
    "Henry VIII ran 60 km/h, i.e. very fast.",
    "Call 555-1234 today.",
    "The answer is 2+2=4.",
    "About 3/4 of the 1,500 people said yes.",
    "That is 5-10% of 3.5 kg.",
)


@pytest.mark.real
def test_a_listener_hears_what_was_written(weights: Callable[[str], Path]) -> None:
    """Piper says it, Moonshine writes it down, in figures or in words; said again, both agree."""
    voice = piper.build(piper.PiperOptions(), weights("piper-joe"))
    stt = moonshine.build(moonshine.MoonshineOptions(), weights("moonshine-tiny-en"))
    errors = []
    for text in HEARD:
        utterance = stt.open("en", False)
        utterance.feed(synthesize(voice, speakable(text)))
        heard = utterance.finish(NEVER).text
        errors.append(
            word_errors(speakable(text).replace("-", " "), speakable(heard).replace("-", " "))
        )
    assert total(errors).rate <= 0.12
