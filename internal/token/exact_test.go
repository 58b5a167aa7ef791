package token

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/tokenizer"
)

// changedTokenizer returns the vocabulary of a learned tokenizer in whose JSON each text
// was replaced by the text after it.
func changedTokenizer(t *testing.T, wasAndWith ...string) *Vocabulary {
	t.Helper()
	learned, err := tokenizer.Train(context.Background(), []byte(strings.Repeat("the cat sat on the mat\n", 20)), 280)
	if err != nil {
		t.Fatal(err)
	}
	text := string(learned.JSON())
	for was := range slices.Chunk(wasAndWith, 2) {
		if !strings.Contains(text, was[0]) {
			t.Fatalf("%s lacks %s", text, was[0])
		}
		text = strings.Replace(text, was[0], was[1], 1)
	}
	changed, err := tokenizer.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return NewTokenizerVocabulary(changed)
}

func TestExactTokensSpellTheText(t *testing.T) {
	for name, v := range map[string]*Vocabulary{
		"learned": changedTokenizer(t, `"normalizer":null`, `"normalizer":null`),
		"space":   changedTokenizer(t, `"pre_tokenizer":{"add_prefix_space":false`, `"pre_tokenizer":{"add_prefix_space":true`),
	} {
		for _, text := range []string{"the cat\n", "Cat \xff\n", "\n", " the mat", ""} {
			ids, err := v.EncodeExact([]int32{7}, []byte(text), true)
			if err != nil {
				t.Fatalf("%s, %q: %v", name, text, err)
			}
			got, err := v.Decode(nil, ids[1:]...)
			if err != nil || ids[0] != 7 || string(got) != text {
				t.Errorf("%s: %q has the tokens of %q, %v", name, text, got, err)
			}
		}
		begin, err := v.EncodeExact(nil, []byte("the cat"), false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Decode(nil, begin...); err != nil || strings.TrimPrefix(string(got), " ") != "the cat" || (got[0] == ' ') != (name == "space") {
			t.Errorf("%s: a text begins with %q, %v", name, got, err)
		}
		s, err := v.NewSequence([]byte("the cat sat\non the mat\n"))
		if err == nil {
			_, err = s.CheckExact()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTextsThatATokenizerChangesAreRefused(t *testing.T) {
	v := changedTokenizer(t, `"normalizer":null`, `"normalizer":{"type":"Lowercase"}`)
	want := `the tokenizer changes the text from byte 3 on, " Cat sat"`
	ids, err := v.EncodeExact([]int32{7}, []byte("the Cat sat"), true)
	if err == nil || !strings.Contains(err.Error(), want) || !slices.Equal(ids, []int32{7}) {
		t.Errorf("%v, %v, want %s", ids, err, want)
	}
	s, err := v.NewSequence([]byte("the Cat sat"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CheckExact(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTextsWithoutTokensAreRefused(t *testing.T) {
	v := changedTokenizer(t, `"normalizer":null`, `"normalizer":{"type":"Strip"}`)
	for text, want := range map[string]bool{"": true, "  \n": false} {
		s, err := v.NewSequence([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CheckExact(); s.Len() > 0 || (err == nil) != want {
			t.Errorf("%q has %d tokens, %v", text, s.Len(), err)
		}
	}
}

// TestBytesFollowTheDecoder compares the bytes of tokens inside a text with the decoded text.
func TestBytesFollowTheDecoder(t *testing.T) {
	for _, c := range []struct{ parts, want string }{
		{`"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"the":1,"cat":2}}`, "the cat"},
		{`"model":{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"@@","vocab":{"u":0,"the":1,"@@ing":2}},"decoder":{"type":"WordPiece","prefix":"@@"}`, "theing"},
		{`"model":{"type":"BPE","vocab":{"u":0,"the":1,"@@ing":2},"merges":[]},"decoder":{"type":"WordPiece","prefix":"@@"}`, "theing"},
		{`"model":{"type":"BPE","vocab":{"u":0,"the</w>":1,"▁cat":2},"merges":[]},"decoder":{"type":"BPEDecoder","suffix":"</w>"}`, "the ▁cat"},
		{`"model":{"type":"BPE","vocab":{"u":0,"the":1,"_cat":2},"merges":[]},"decoder":{"type":"Metaspace","replacement":"_"}`, "the cat"},
		{`"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1,"b":2}},"decoder":{"type":"Fuse"}`, "ab"},
	} {
		v, err := tokenizer.Parse([]byte("{" + c.parts + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NewTokenizerVocabulary(v).Decode(nil, 1, 2); err != nil || strings.TrimPrefix(string(got), " ") != c.want {
			t.Errorf("%s: %q, %v, want %q", c.parts, got, err, c.want)
		}
		if got, err := v.Decode([]int32{1, 2}); err != nil || got != c.want {
			t.Errorf("%s: decoded %q, %v, want %q", c.parts, got, err, c.want)
		}
	}
	// Characters with spaces among them are the text.
	v, err := tokenizer.Parse([]byte(`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"."},"behavior":"Isolated","invert":false},"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1," ":2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(v.Bytes(1)) + string(v.Bytes(2)); got != "a " {
		t.Errorf("characters are %q", got)
	}
}

// Text that goes on has no space before it, also where a special token in it spells nothing.
func TestNextTextHasNoSpaceBeforeIt(t *testing.T) {
	v := changedTokenizer(t, `"pre_tokenizer":{"add_prefix_space":false`,
		`"pre_tokenizer":{"add_prefix_space":true`,
		`"added_tokens":[]`, `"added_tokens":[{"id":268,"content":"</s>","special":true}]`)
	for text, want := range map[string]string{"cat": "cat", " cat": " cat", "cat</s>": "cat", "\ncat": "\ncat", "cat</s> sat": "cat sat", "": ""} {
		ids, err := v.EncodeNext([]int32{7}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Decode(nil, ids[1:]...); err != nil || string(got) != want || ids[0] != 7 {
			t.Errorf("%q has the tokens of %q, %v, want %q", text, got, err, want)
		}
	}
}
