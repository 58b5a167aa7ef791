package tokenizer

import (
	"testing"
)

// tiny is a tokenizer.json with components of each kind.
const tiny = `{"version":"1.0","added_tokens":[{"id":5,"content":"<m>","lstrip":true,"rstrip":true,"single_word":false,"normalized":true,"special":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},{"type":"Lowercase"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|[^\\s]+"},"behavior":"Isolated","invert":false},
{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]},
"post_processor":{"type":"BertProcessing","cls":["a",1],"sep":["b",2]},
"decoder":{"type":"Metaspace","replacement":"▁"},
"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"a":1,"b":2,"ab":3,"▁":4},"merges":["a b"]}}`

// FuzzParse holds that a damaged tokenizer.json gives an error, and a sound one offsets inside
// the text.
func FuzzParse(f *testing.F) {
	f.Add([]byte(tiny), "ab  <m> ÀBab\xff x")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		v, err := Parse(data)
		if err != nil {
			return
		}
		checkEncoding(t, v, text)
	})
}

// FuzzModelProto holds the same for tokenizer.model.
func FuzzModelProto(f *testing.F) {
	f.Add([]byte("\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x05\n\x03\xe2\x96\x81\n\x03\n\x01a\n\x06\n\x04\xe2\x96\x81a\x12\x02\x18\x02"), "a aé  a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		v, err := ParseSentencePiece(data, true, true)
		if err != nil {
			return
		}
		checkEncoding(t, v, text)
	})
}

// checkEncoding holds what is true of each encoding.
func checkEncoding(t *testing.T, v *Tokenizer, text string) {
	t.Helper()
	e := v.Encode(text)
	if len(e.IDs) != len(e.Offsets) || len(e.IDs) != len(e.Types) {
		t.Fatalf("%d ids, %d offsets, %d types", len(e.IDs), len(e.Offsets), len(e.Types))
	}
	for i, o := range e.Offsets {
		if o[0] < 0 || o[0] > o[1] || o[1] > len(text) {
			t.Fatalf("%q: offsets of token %d are %v, the text has %d bytes", text, i, o, len(text))
		}
	}
	if _, err := v.Decode(e.IDs); err != nil {
		t.Fatal(err)
	}
}
