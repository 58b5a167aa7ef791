package token

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/tokenizer"
)

func mustChars(t testing.TB, text string) *Vocabulary {
	t.Helper()
	v, err := NewCharVocabulary([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCharactersAreNumberedByCodePoint(t *testing.T) {
	v := mustChars(t, "zé€a\n€z\U0001F600")
	got, err := v.Encode([]int32{9}, []byte("\naz€é\U0001F600"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{9, 0, 1, 2, 4, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("tokens are %v, want %v", got, want)
	}
	if v.Size() != 6 || v.Kind() != "chars" {
		t.Errorf("size %d, kind %s", v.Size(), v.Kind())
	}
	if n := v.CountBytes(got[1:]); n != 1+1+1+3+2+4 {
		t.Errorf("the tokens stand for %d bytes", n)
	}
}

func TestDecodeInvertsEncode(t *testing.T) {
	binary := make([]byte, 1000)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	text := "naïve – 日本語\nfunc main() {}\x00\ufffd"
	for _, c := range []struct {
		name string
		v    *Vocabulary
		text []byte
	}{
		{"bytes of anything", NewByteVocabulary(), binary},
		{"bytes of text", NewByteVocabulary(), []byte(text)},
		{"chars", mustChars(t, text), []byte(text)},
		{"nothing", mustChars(t, text), nil},
	} {
		tokens, err := c.v.Encode(nil, c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []byte
		for _, k := range tokens { // one at a time must be the same as together
			if got, err = c.v.Decode(got, k); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if !bytes.Equal(got, c.text) {
			t.Errorf("%s: came back as %q", c.name, got)
		}
		if n := c.v.CountBytes(append(tokens, -1, 256)); n != int64(len(c.text)) {
			t.Errorf("%s: %d bytes, want %d", c.name, n, len(c.text))
		}
	}
}

func TestErrorsNameTheCharacter(t *testing.T) {
	v := mustChars(t, "abc")
	for _, c := range []struct {
		text  string
		wants []string
	}{
		{"abäc", []string{`'ä'`, "offset 2", "3 characters"}},
		{"ab\xff", []string{"0xff", "offset 2", "UTF-8"}},
	} {
		_, err := v.Encode(nil, []byte(c.text))
		for _, want := range c.wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error is %v, does not say %s", c.text, err, want)
			}
		}
	}
	for _, k := range []int32{-1, 3} {
		if _, err := v.Decode(nil, k); err == nil {
			t.Errorf("token %d was decoded", k)
		}
	}
	if _, err := NewCharVocabulary([]byte("a\x80")); err == nil || !strings.Contains(err.Error(), "offset 1") {
		t.Errorf("text that is not UTF-8: error is %v", err)
	}
	if _, err := NewCharVocabulary(nil); err == nil {
		t.Error("an empty text has a vocabulary")
	}
}

func TestSaveAndLoad(t *testing.T) {
	for _, v := range []*Vocabulary{NewByteVocabulary(), mustChars(t, "a<b>&\u2028\ufffd\x00\"\\")} {
		path := filepath.Join(t.TempDir(), "vocab.json")
		if err := v.Save(path); err != nil {
			t.Fatal(err)
		}
		got, err := LoadVocabulary(path)
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind() != v.Kind() || !slices.Equal(got.chars, v.chars) {
			t.Errorf("came back as %s %q, was %s %q", got.Kind(), got.chars, v.Kind(), v.chars)
		}
	}
}

func TestLoadRefusesDamagedVocabularies(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"other format", `{"format":"words","version":1,"kind":"bytes"}`, "words"},
		{"other version", `{"format":"farfield vocabulary","version":2,"kind":"bytes"}`, "version is 2"},
		{"other kind", `{"format":"farfield vocabulary","version":1,"kind":"words"}`, "words"},
		{"bytes with characters", `{"format":"farfield vocabulary","version":1,"kind":"bytes","chars":"a"}`, "kind"},
		{"no characters", `{"format":"farfield vocabulary","version":1,"kind":"chars"}`, "no characters"},
		{"disorder", `{"format":"farfield vocabulary","version":1,"kind":"chars","chars":"ba"}`, "'a', after 'b'"},
		{"repetition", `{"format":"farfield vocabulary","version":1,"kind":"chars","chars":"aa"}`, "after"},
		{"half a file", `{"format":"farfield voc`, "JSON"},
		{"list", `[]`, "vocabulary"},
	} {
		path := filepath.Join(t.TempDir(), "vocab.json")
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := LoadVocabulary(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
	if _, err := LoadVocabulary(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was loaded")
	}
}

func TestWriterPassesWholeCharacters(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, c := range []struct{ in, out string }{
		{"a\n\t", "a\n\t"},
		{"\xe2", ""},
		{"\x82", ""},
		{"\xac!", "€!"},
		{"\xffb", "\ufffdb"},
		{"\xe2b", "\ufffdb"},
		{"\x1b[2J\r\u009b", "\ufffd[2J\ufffd\ufffd"},
		{"\xf0\x9f", ""},
	} {
		if n, err := w.Write([]byte(c.in)); n != len(c.in) || err != nil {
			t.Fatalf("%q: %d, %v", c.in, n, err)
		}
		if got := b.String(); got != c.out {
			t.Errorf("after %q: wrote %q, want %q", c.in, got, c.out)
		}
		b.Reset()
	}
	if err := w.Flush(); err != nil || b.String() != "\ufffd\ufffd" {
		t.Errorf("flushed %q, %v", b.String(), err)
	}
}

func FuzzVocabulary(f *testing.F) {
	f.Add([]byte(`{"format":"farfield vocabulary","version":1,"kind":"bytes"}`))
	f.Add([]byte(`{"format":"farfield vocabulary","version":1,"kind":"chars","chars":"\u0000aé\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v := new(Vocabulary)
		if json.Unmarshal(data, v) != nil {
			return
		}
		all := make([]int32, v.Size())
		for i := range all {
			all[i] = int32(i)
		}
		text, err := v.Decode(nil, all...)
		if err != nil {
			t.Fatal(err)
		}
		back, err := v.Encode(nil, text)
		if err != nil || !slices.Equal(back, all) {
			t.Fatalf("tokens came back as %v: %v", back, err)
		}
		if again, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		} else if err := json.Unmarshal(again, new(Vocabulary)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestVocabularyOfTokenizerIsSavedWithIt(t *testing.T) {
	text := []byte(strings.Repeat("the cat sat on the mat, café\n", 20))
	bpe, err := tokenizer.Train(t.Context(), text, 280)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vocab.json")
	if err := NewTokenizerVocabulary(bpe).Save(path); err != nil {
		t.Fatal(err)
	}
	v, err := LoadVocabulary(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := v.NewSequence(text)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := v.Encode(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	back, err := v.Decode(nil, slices.Collect(s.All())...)
	if err != nil {
		t.Fatal(err)
	}
	half := s.Slice(s.Len()/2, s.Len())
	if v.Kind() != KindWords || v.Size() != bpe.Size() || !bytes.Equal(back, text) || s.Bytes() != int64(len(text)) ||
		!slices.Equal(half.Append(nil, 0, half.Len()), tokens[len(tokens)/2:]) {
		t.Errorf("kind %s, size %d, %d bytes of %d, text %.40q", v.Kind(), v.Size(), s.Bytes(), len(text), back)
	}
}
