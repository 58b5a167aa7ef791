package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestClassesDoNotDependOnTheToolchain hashes what each character is taken for, normalized to, and matched by. The
// hash is the same with each version of Go; its change is a change of ids.
func TestClassesDoNotDependOnTheToolchain(t *testing.T) {
	t.Parallel()
	const want = "7195b503d40f1057df7777a541c5384da60b1cff0b2bf9b0e3172d5cbdbe1851"
	h := sha256.New()
	var steps [][]normalizer
	for _, kind := range strings.Fields("BertNormalizer NFC NFD NFKC NFKD Lowercase StripAccents Strip Nmt") {
		list, err := readNormalizer([]byte(`{"type":"`+kind+`"}`), &bounds{growth: 1})
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, list)
	}
	in, other := new(text), new(text)
	var all, row, one []byte
	for r := range rune(utf8.MaxRune + 1) {
		if 0xD800 <= r && r < 0xE000 {
			continue
		}
		row = append(row[:0], category(r)...)
		for _, is := range []bool{isSpace(r), isWordChar(r), isPunctuation(r), isControl(r), isDigit(r)} {
			if row = append(row, 0); is {
				row[len(row)-1] = 1
			}
		}
		one = utf8.AppendRune(append(one[:0], 'a'), r)
		row = append(row, charClass(r), byte(graphemeSize(one)), byte(graphemeSize(append(one[1:], 'a'))))
		h.Write(utf8.AppendRune(row, toLower(r)))
		if r > 0x20100 && r < 0x2F800 || r > 0x2FA20 && r < 0xE0000 || r > 0xE0200 {
			continue // nothing but ideographs, private and unassigned ones
		}
		all = utf8.AppendRune(all, r)
		for _, list := range steps {
			in.set(append(one, "\u0301\u0327"...), 0)
			in, other = normalizeAll(list, in, other)
			h.Write(in.b)
		}
	}
	for _, pattern := range []string{`\p{L}+`, `\w+`, `[\w]+`, `[^\s\d]+`, `\p{Lu}+`, `\P{M}+`, `\p{Han}+`, `\p{^Latin}+`, `(?i:[a-zé\x{264}σ]+)`,
		`(?i:ɤ|ß|[\x{3B1}-\x{3C9}])`} {
		p, err := newPattern(pattern)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		for m := range p.all(all) {
			fmt.Fprint(h, m)
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("hash is %s, want %s", got, want)
	}
}

// TestPackageHasNoTablesOfTheToolchain holds that no file but regex.go, whose use of it says why it may, imports a
// package with tables of Unicode.
func TestPackageHasNoTablesOfTheToolchain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); path == "unicode" && name != "regex.go" || strings.HasPrefix(path, "golang.org/x/text") {
				t.Errorf("%s imports %s", name, path)
			}
		}
		for _, call := range []string{"bytes.ToLower", "bytes.ToUpper", "strings.ToUpper", "bytes.Fields", "bytes.TrimSpace", "EqualFold"} {
			if strings.Contains(string(data), call+"(") {
				t.Errorf("%s calls %s, which has tables of the toolchain", name, call)
			}
		}
	}
}

// TestUnicodeFileIsWhole reads the file to its end, and holds what the tables must keep.
func TestUnicodeFileIsWhole(t *testing.T) {
	t.Parallel()
	u := &unicodeReader{unicodeFile}
	u.runs()
	for range u.number() {
		u.b = u.b[u.number():]
	}
	u.runs()
	u.runs()
	for range 2 {
		for range u.number() {
			u.number()
			u.number()
		}
	}
	newFormTables(u)
	if len(u.b) != 0 {
		t.Fatalf("%d bytes are left", len(u.b))
	}
	for _, r := range []rune{'k', 'K', 0x212A, 'ß', 'ẞ', 'σ', 'ς', 'Σ', 'é', 'É'} {
		seen := []rune{r}
		for f := r + rune(tables().folds.at(r)); f != r; f += rune(tables().folds.at(f)) {
			if seen = append(seen, f); len(seen) > 4 {
				t.Fatalf("%c has the orbit %q", r, seen)
			}
		}
		if set := (runeSet{r, r}).fold(); len(seen) < 2 || !slices.Equal(set, setFrom(seen)) {
			t.Errorf("%c has the orbit %q, folded %v", r, seen, set)
		}
	}
}

// setFrom returns the set of some characters.
func setFrom(list []rune) (set runeSet) {
	for _, r := range list {
		set = append(set, r, r)
	}
	return set.normal()
}

func TestPropertiesHaveTheirNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]rune{"L": 'a', "Lu": 'A', "uppercase_letter": 'A', "Letter": 'é', "LC": 'a', "Han": '中', "HIRAGANA": 'あ', "Old Italic": 0x10300,
		"any": 0, "Cn": 0x378, "Co": 0xE000, "Zs": ' ', "punct": '!', "Garay": 0x10D40} {
		set, has := property(name)
		in := (&charSet{ranges: set}).has(want)
		if !has || !in {
			t.Errorf("%s: known: %t, has %U: %t", name, has, want, in)
		}
		if out := set.complement(); (&charSet{ranges: out}).has(want) {
			t.Errorf("the complement of %s has %U", name, want)
		}
	}
	for _, pattern := range []string{`\p{Klingon}`, `\p{}`, `\p{L`, `a(?i)b|c`, `[a`, `a)`, `\p`} {
		if _, err := newPattern(pattern); err == nil {
			t.Errorf("%s is read", pattern)
		}
	}
}
