package tokenizer

import (
	"fmt"
	"strings"
	"testing"
)

func TestAddedTokensOfOtherIDsAreRefused(t *testing.T) {
	t.Parallel()
	const text = `{"added_tokens":[{"id":ID,"content":"NAME","special":true}],"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}}`
	for _, c := range []struct{ id, name, want string }{
		{"2", "<s>", ""},
		{"1", "b", ""},
		{"5", "<s>", `"<s>" has the id 5, its place in the vocabulary is 2`}, // the reference gives 2
		{"2", "b", `"b" has the id 2, its place in the vocabulary is 1`},
		{"1", "<s>", `"<s>" has the id 1, its place in the vocabulary is 2`},
	} {
		_, err := Parse([]byte(strings.NewReplacer("ID", c.id, "NAME", c.name).Replace(text)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with id %s: %v, want %q", c.name, c.id, err, c.want)
		}
	}
}

// TestEncodingsAreReferenceEncodings compares with ids and offsets of tokenizers 0.23.3.
func TestEncodingsAreReferenceEncodings(t *testing.T) {
	t.Parallel()
	const (
		added = `"added_tokens":[{"id":3,"content":"<m>","rstrip":true},{"id":4,"content":" x","lstrip":LSTRIP},{"id":5,"content":"  "}],
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false},"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"a":1,"▁":2},"merges":[]}`
		fused = `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"type":"BPE","unk_token":"u","fuse_unk":true,"vocab":{"u":0,"a":1},"merges":[]}`
		trims = `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"post_processor":{"type":"ByteLevel","trim_offsets":true,"add_prefix_space":true},
"model":{"type":"BPE","vocab":{"a":0,"Ġ":1,"ĠĠ":2,"Ġa":3},"merges":["Ġ Ġ","Ġ a"]}`
	)
	stripped := strings.Replace(added, "LSTRIP", "true", 1)
	for _, c := range []struct{ parts, text, want string }{
		{strings.Replace(added, "LSTRIP", "false", 1), "<m> x a", "[3 4 2 1] [[0 4] [3 5] [5 6] [6 7]]"},
		{stripped, "<m> x a", "[3 4 2 1] [[0 4] [4 5] [5 6] [6 7]]"},
		{stripped, "<m>   a", "[3 5 2 1] [[0 6] [3 5] [5 6] [6 7]]"},
		{fused, "abcdaé", "[1 0 1 0] [[0 1] [1 4] [4 5] [5 7]]"},
		{strings.Replace(fused, "true", "false", 1), "bca", "[0 0 1] [[0 1] [1 2] [2 3]]"},
		{trims, "a", "[3] [[0 1]]"},
		{trims, "  a", "[1 3] [[0 0] [2 3]]"},
		{trims, "   a", "[2 3] [[2 2] [3 4]]"},
	} {
		v, err := Parse([]byte("{" + c.parts + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if e := v.Encode(c.text); fmt.Sprint(e.IDs, e.Offsets) != c.want {
			t.Errorf("%s, %q: %v %v, want %s", c.parts, c.text, e.IDs, e.Offsets, c.want)
		}
	}
}

func TestFilesWithBytesBehindTheirValueAreRefused(t *testing.T) {
	t.Parallel()
	data := []byte(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}}` + "\n")
	words, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for _, rest := range []string{"{}", "}", "x", `"`} {
		if _, err := Parse([]byte(want + rest)); err == nil || !strings.Contains(err.Error(), "more follows the JSON value, which ends at byte 68 of") {
			t.Errorf("%s: %v", rest, err)
		}
	}
	if clear(data); string(words.JSON()) != want {
		t.Errorf("the tokenizer changes with the bytes that it was read from: %q", words.JSON())
	}
}

// TestTextsOfAddedTokensTakeLinearTime has texts that took minutes when each token read the white space after it.
func TestTextsOfAddedTokensTakeLinearTime(t *testing.T) {
	t.Parallel()
	v, err := Parse([]byte(`{"added_tokens":[{"id":2,"content":" ","rstrip":true},{"id":3,"content":"\n","lstrip":true}],
"post_processor":{"type":"ByteLevel","trim_offsets":true,"add_prefix_space":true},"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"a":1},"merges":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 20
	for _, c := range []struct {
		text string
		ids  int
	}{{strings.Repeat(" ", n), n}, {strings.Repeat(" ", n) + "\n", n}, {strings.Repeat(" a", n), 2 * n}, {strings.Repeat("\n", n), n}} {
		e := v.Encode(c.text)
		if last := e.Offsets[len(e.Offsets)-1]; len(e.IDs) != c.ids || last[1] != len(c.text) {
			t.Errorf("%.4q…: %d ids, the last at %v, want %d of %d bytes", c.text, len(e.IDs), last, c.ids, len(c.text))
		}
	}
	long := strings.Repeat("x", maxKey+1)
	for _, part := range []string{
		`"added_tokens":[{"id":2,"content":"LONG"}],"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}`,
		`"model":{"type":"WordPiece","unk_token":"a","vocab":{"a":0,"LONG":1}}`,
		`"model":{"type":"Unigram","unk_id":0,"vocab":[["a",0],["LONG",-1]]}`,
	} {
		if _, err := Parse([]byte("{" + strings.Replace(part, "LONG", long, 1) + "}")); err == nil || !strings.Contains(err.Error(), "has 513 bytes, at most 512 are read") {
			t.Errorf("%.60s…: %v", part, err)
		}
		if _, err := Parse([]byte("{" + strings.Replace(part, "LONG", long[1:], 1) + "}")); err != nil {
			t.Error(err)
		}
	}
}
