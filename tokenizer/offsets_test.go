package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"
)

// normalizersOfTests has a normalizer of each type, and some in a row.
func normalizersOfTests() map[string]string {
	one := map[string]string{
		"BertNormalizer": `{"type":"BertNormalizer"}`,
		"NFC":            `{"type":"NFC"}`,
		"NFD":            `{"type":"NFD"}`,
		"NFKC":           `{"type":"NFKC"}`,
		"NFKD":           `{"type":"NFKD"}`,
		"Lowercase":      `{"type":"Lowercase"}`,
		"StripAccents":   `{"type":"StripAccents"}`,
		"Strip":          `{"type":"Strip"}`,
		"Nmt":            `{"type":"Nmt"}`,
		"Prepend":        `{"type":"Prepend","prepend":"▁é"}`,
		"ByteLevel":      `{"type":"ByteLevel"}`,
		"Replace":        `{"type":"Replace","pattern":{"String":"ab"},"content":"xyz"}`,
		"Replace 2":      `{"type":"Replace","pattern":{"Regex":"[ \\x{1}]+"},"content":""}`,
		"Precompiled": `{"type":"Precompiled","precompiled_charsmap":"` + base64.StdEncoding.EncodeToString(charsmapOf("\x01", "", "\u200d", "", "\t", " ",
			"ﬁ", "fi", "e\u0301", "\u00e9", "½", "1\u20442")) + `"}`,
	}
	all := map[string]string{"none": "null"}
	for name, a := range one {
		all[name] = a
		for next, b := range one {
			all[name+", "+next] = `{"type":"Sequence","normalizers":[` + a + `,` + b + `]}`
		}
	}
	return all
}

// randomText returns characters that normalizers drop, add, compose and decompose, bytes that are not UTF-8, and
// the mark q.
func randomText(random *rand.Rand, rest ...string) string {
	parts := append(rest, "q", "q", "q", "a", "b", "ab", "A", " ", "  ", "\t", "\n", "\x00", "\x01", "\x7f", "\u0085", "\u00ad", "\u200b", "\u200d", "\ufeff", "\ufffd",
		"\u0301", "\u0327", "e\u0301", "é", "É", "İ", "ß", "ﬁ", "ﷺ", "㍍", "½", "中", "가", "\u1100\u1161", "각", "ｱﾞ", "😀", "👨\u200d👩", "🇩🇪", "\u3000",
		"\U0001d160", "ΐ", "\xff", "\xe4\xb8", "\xf0")
	var b []byte
	for range random.IntN(14) {
		b = append(b, parts[random.IntN(len(parts))]...)
	}
	return string(b)
}

// TestOffsetsAreOfTheGivenText holds the span of each q of an encoding against the text, for all normalizers,
// pre-tokenizers that add or rewrite characters, and added tokens.
func TestOffsetsAreOfTheGivenText(t *testing.T) {
	t.Parallel()
	const letters = `"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"q":1},"merges":[]}}`
	const added = `"added_tokens":[{"id":2,"content":"<m>","lstrip":true,"rstrip":true},{"id":3,"content":"É","normalized":true,"rstrip":true}],`
	splits := []string{"null", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, `{"type":"ByteLevel","add_prefix_space":true}`,
		`{"type":"Sequence","pretokenizers":[{"type":"BertPreTokenizer"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false},{"type":"ByteLevel","add_prefix_space":true}]}`}
	random := rand.New(rand.NewPCG(1, 2))
	count := 0
	all := normalizersOfTests()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		norm := all[name]
		for i, split := range splits {
			v, err := Parse([]byte(`{` + added + `"normalizer":` + norm + `,"pre_tokenizer":` + split + `,` + letters))
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				given := randomText(random, "<m>")
				var want, got [][2]int
				for k := range len(given) {
					if given[k] == 'q' {
						want = append(want, [2]int{k, k + 1})
					}
				}
				e := v.Encode(given)
				for k, id := range e.IDs {
					if id == 1 {
						got = append(got, e.Offsets[k])
					}
				}
				if count += len(got); !slices.Equal(got, want) {
					t.Fatalf("%s, pre-tokenizer %d, %q: q is at %v, want %v", name, i, given, got, want)
				}
			}
		}
	}
	t.Logf("%d spans compared", count)
}

// TestSpansStandForTheirCharacters normalizes the piece around the span of each character of a normalized text: it
// has that character.
func TestSpansStandForTheirCharacters(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	count := 0
	all := normalizersOfTests()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		raw := all[name]
		list, err := readNormalizer([]byte(raw), &bounds{growth: 1})
		if err != nil {
			t.Fatal(err)
		}
		run := func(s string) *text {
			in := new(text)
			in.set([]byte(s), 0)
			in, _ = normalizeAll(list, in, new(text))
			return in
		}
		for range 20 {
			given := randomText(random)
			var ends []int // of characters with the marks after them
			for at := 0; at < len(given); {
				at += graphemeSize([]byte(given[at:]))
				ends = append(ends, at)
			}
			out := run(given)
			last := 0
			for i, n := 0, 0; i < len(out.b); i += n {
				_, n = utf8.DecodeRune(out.b[i:])
				s := out.offsets(span{i, i + n})
				if s.start < last || s.end < s.start || s.end > len(given) {
					t.Fatalf("%s, %q: character %d of %q is at %v, behind %d", name, given, i, out.b, s, last)
				}
				last = s.start
				k, _ := slices.BinarySearch(ends, s.start+1)
				piece := given[:ends[min(len(ends)-1, k+2)]]
				if k > 2 {
					piece = "q" + piece[ends[k-3]:]
				}
				if k+3 < len(ends) {
					piece += "q"
				}
				if piece := run(piece); !bytes.Contains(piece.b, out.b[i:i+n]) {
					t.Fatalf("%s, %q: %q is at %v, but the piece around it becomes %q", name, given, out.b[i:i+n], s, piece.b)
				}
				count++
			}
		}
	}
	t.Log(fmt.Sprint(count, " characters compared"))
}

// TestCharactersThatVanishShiftNothing has the texts in which the reference counts wrongly.
func TestCharactersThatVanishShiftNothing(t *testing.T) {
	t.Parallel()
	list, err := readNormalizer([]byte(normalizersOfTests()["Precompiled"]), &bounds{growth: 1})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"\x01ab":      "[{1 2} {2 3}]",
		"a\x01b":      "[{0 1} {2 3}]",
		"ﬁ\x01b":      "[{0 3} {0 3} {4 5}]",
		"e\u0301\x01": "[{0 1}]",
		"\x01\u200d½": "[{4 6} {4 6} {4 6}]",
	} {
		in := new(text)
		in.set([]byte(given), 0)
		in, _ = normalizeAll(list, in, new(text))
		var got []span
		for i := range string(in.b) {
			got = append(got, in.source(i))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%q, normalized %q: spans are %v, want %s", given, in.b, got, want)
		}
	}
}
