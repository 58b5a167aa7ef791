package tokenizer

import (
	"strings"
	"testing"
)

func TestAddedTokensOfOtherIDsAreRefused(t *testing.T) {
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

func TestFilesWithBytesBehindTheirValueAreRefused(t *testing.T) {
	data := []byte(`{"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}}` + "\n")
	words, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for _, rest := range []string{"{}", "}", "x", `"`} {
		if _, err := Parse([]byte(want + rest)); err == nil || !strings.Contains(err.Error(), "the JSON value ends at byte 68 of") {
			t.Errorf("%s: %v", rest, err)
		}
	}
	if clear(data); string(words.JSON()) != want {
		t.Errorf("the tokenizer changes with the bytes that it was read from: %q", words.JSON())
	}
}
