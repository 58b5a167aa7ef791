package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
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
		v, err := parseSentencePiece(data, true, true)
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

// FuzzPattern holds that a pattern is refused or finds matches in order, the same with records as without.
func FuzzPattern(f *testing.F) {
	f.Add(`(?i:'s|'t)|\p{L}+(?=.*b)|[^\s\d]+|a.*b|a{1,3}`, "ab's é1 2\xffb")
	f.Fuzz(func(t *testing.T, s, text string) {
		p, err := newPattern(s)
		if err != nil || len(text) > 1<<10 {
			return
		}
		var got []span
		for m := range p.all([]byte(text)) {
			if last := len(got) - 1; m.start >= m.end || m.end > len(text) || last >= 0 && m.start < got[last].end {
				t.Fatalf("%q in %q: match %v behind %v", s, text, m, got)
			}
			got = append(got, m)
		}
		if recorded := slices.Collect(p.search(&search{choices: p.choices}, []byte(text))); !slices.Equal(recorded, got) {
			t.Fatalf("%q in %q: matches with records are %v, without %v", s, text, recorded, got)
		}
	})
}

// FuzzFolder holds that the files beside a tokenizer.json are refused, or that its JSON keeps what they add.
func FuzzFolder(f *testing.F) {
	f.Add(`{"bos_token":"<m>","add_bos_token":true,"tokenizer_class":"LlamaTokenizer","clean_up_tokenization_spaces":true}`, `{"eos_token":{"content":"ab"}}`, `{"b":2}`, "ab <m> b")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, special, added, text string) {
		for name, text := range map[string]string{"tokenizer.json": tiny, "tokenizer_config.json": config, "special_tokens_map.json": special, "added_tokens.json": added} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		v, err := Open(dir)
		if err != nil {
			return
		}
		checkEncoding(t, v, text)
		again, err := Parse(v.JSON())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := again.Encode(text).IDs, v.Encode(text).IDs; !slices.Equal(got, want) {
			t.Fatalf("%s %s %s: the JSON gives %v, the folder %v", config, special, added, got, want)
		}
	})
}
