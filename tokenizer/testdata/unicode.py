# Writes ../unicode.bin: what Hugging Face tokenizers takes each character for. Its parts have tables of several
# versions of Unicode, so each class is measured, character by character. unicode.go describes the file.
# Run it in this folder, with Python of Unicode 14 or later: python unicode.py
import base64, struct, unicodedata
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

LIMIT = 0x110000
points = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]


def matches(pattern, among):
    """Returns the characters that a pattern matches."""
    found = set()
    for _, (a, b) in P.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str("".join(map(chr, among))):
        found.update(among[a:b])
    return found


categories = "Cn Cc Cf Co Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
scripts = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi
Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot
Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian
Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana
Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar
Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao
Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki
Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya
Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian
Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham
Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi Wancho
Warang_Citi Yezidi Yi Zanabazar_Square""".split()

category = dict.fromkeys(range(LIMIT), "Cn")
private = matches(r"\p{Co}+", points)
for c in private:
    category[c] = "Co"
assigned = sorted(set(points) - private - matches(r"\p{Cn}+", points))
for name in categories:
    if name not in ("Cn", "Co"):
        for c in matches(r"\p{%s}+" % name, assigned):
            category[c] = name
for c in range(0xD800, 0xE000):
    category[c] = "Cn"  # no text has them
script = dict.fromkeys(range(LIMIT), 0)
for i, name in enumerate(scripts):
    for c in matches(r"\p{%s}+" % name, assigned):
        script[c] = i + 1

flags = dict.fromkeys(range(LIMIT), 0)
names = "control punctuation accent mark number word extension prepended break pattern_word".split()


def mark(name, c):
    flags[c] |= 1 << names.index(name)


clean = N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
accents = N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
marks, points_out, digits, words = N.StripAccents(), P.Punctuation(), P.Digits(), P.Whitespace()
for c in points:
    s = chr(c)
    if clean.normalize_str("a" + s) == "a" and c not in (0, 0xFFFD):
        mark("control", c)
    if accents.normalize_str("a" + s) == "a":
        mark("accent", c)
    if marks.normalize_str("a" + s) == "a":
        mark("mark", c)
    if len(points_out.pre_tokenize_str("a" + s)) == 2:
        mark("punctuation", c)
    if len(digits.pre_tokenize_str("a" + s)) == 2:
        mark("number", c)
    if words.pre_tokenize_str("a" + s) == [("a" + s, (0, 2))]:
        mark("word", c)
for c in matches(r"\w+", assigned):
    mark("pattern_word", c)


def precompiled(key):
    """Returns a normalizer that writes Y for a key."""
    units, node, at = [0] * 256, 0, 0
    for c in key.encode():
        at = node + c
        units[at] = c | (at ^ len(units)) << 10
        units += [0] * 256
        node = at ^ units[at] >> 10
    units[at] |= 1 << 8
    return N.Precompiled(struct.pack("<%dI" % (len(units) + 1), 4 * len(units), *units) + b"Y\0")


after = precompiled("a")
uniform = {"CJK UNIFIED", "CJK COMPATI", "HANGUL SYLL", "TANGUT IDEO", "EGYPTIAN HI", "ANATOLIAN H", "CUNEIFORM S", "YI SYLLABLE"}
for c in points:
    if after.normalize_str("a" + chr(c)) == "Y":
        mark("extension", c)
for c in assigned:
    s = chr(c)
    if s == "a" or unicodedata.name(s, "")[:11] in uniform or c == 0:
        continue
    own = precompiled(s)
    if own.normalize_str(s + "a") == "Y":
        mark("prepended", c)
    if c < 0x10000 and own.normalize_str(s + "\u0301") != "Y":
        mark("break", c)

lower = {c: N.Lowercase().normalize_str(chr(c)) for c in points}
lower = {c: ord(s) for c, s in lower.items() if s != chr(c) and len(s) == 1}  # U+0130 becomes two
cased = {}
for c in assigned:
    small = chr(lower.get(c, c))
    cased.setdefault(small.casefold() if len(small.casefold()) == 1 else small, set()).add(c)
folds = {}
for group in cased.values():
    group = {c for c in group | {lower.get(c, c) for c in group}}
    while group:
        first = min(group)
        same = sorted({first} | {c for c in group if matches("(?i:%s)" % (chr(first) if chr(first).isalnum() else "[\\x{%X}]" % first), [c])})
        group -= set(same)
        for k, c in enumerate(same):
            if len(same) > 1:
                folds[c] = same[(k + 1) % len(same)]

nfd, nfkd, nfc = N.NFD(), N.NFKD(), N.NFC()
decomposed, ccc, pairs = {}, dict.fromkeys(range(LIMIT), 0), []
for c in assigned:
    s = chr(c)
    if 0xAC00 <= c < 0xD7A4:
        continue
    canonical, compatible = nfd.normalize_str(s), nfkd.normalize_str(s)
    if compatible != s:
        decomposed[c] = (canonical if canonical != s else "", compatible if compatible != canonical else "")
    if canonical == s and (nfd.normalize_str(s + "\u0334") != s + "\u0334" or nfd.normalize_str("\u0345" + s) != "\u0345" + s):
        ccc[c] = unicodedata.combining(s)
        assert ccc[c] > 0, hex(c)
    parts = unicodedata.decomposition(s).split()
    if len(parts) == 2 and parts[0][0] != "<" and nfc.normalize_str(s) == s:
        a, b = (int(p, 16) for p in parts)
        if nfc.normalize_str(chr(a) + chr(b)) == s:
            pairs.append((a, b, c))

out = bytearray()


def put(n):
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)


def put_signed(n): put(n << 1 if n >= 0 else -n << 1 | 1)


def put_runs(values):
    first = 0
    for c in range(1, LIMIT + 1):
        if c == LIMIT or values[c] != values[first]:
            put(c - first)
            put(values[c - 1])
            first = c


def put_text(s):
    put(len(s))
    last = 0
    for c in map(ord, s):
        put_signed(c - last)
        last = c


put_runs({c: categories.index(name) for c, name in category.items()})
put(len(scripts))
for name in scripts:
    put(len(name))
    out += name.encode()
put_runs(script)
put_runs(flags)
for table in (lower, folds):
    put(len(table))
    last = 0
    for c in sorted(table):
        put(c - last)
        put_signed(table[c] - c)
        last = c
put(len(decomposed))
last = 0
for c in sorted(decomposed):
    put(c - last)
    put_text(decomposed[c][0])
    put_text(decomposed[c][1])
    last = c
put_runs(ccc)
put(len(pairs))
for a, b, c in sorted(pairs):
    put(a)
    put(b)
    put(c)
with open("../unicode.bin", "wb") as f:
    f.write(out)
print(len(out), "bytes;", len(lower), "lower,", len(folds), "folds,", len(decomposed), "decomposed,", len(pairs), "pairs")
