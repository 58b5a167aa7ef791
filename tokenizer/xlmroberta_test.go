package tokenizer

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// appendField appends a field of bytes to a message of protocol buffers.
func appendField(b []byte, number int, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(number<<3|2))
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// unigramModel returns a tokenizer.model of pieces, the earlier ones more likely.
func unigramModel(pieces ...string) (data []byte) {
	for i, text := range pieces {
		kind := byte(pieceNormal)
		switch text {
		case "<unk>":
			kind = pieceUnknown
		case "<s>", "</s>":
			kind = pieceControl
		case "<turn>", "▁▁", "\n\n":
			kind = pieceUser
		}
		p := appendField(nil, 1, []byte(text))
		p = binary.LittleEndian.AppendUint32(append(p, 2<<3|5), math.Float32bits(-float32(i)/4))
		data = appendField(data, 1, append(p, 3<<3, kind))
	}
	return data
}

// charsmapOf returns the bytes of a precompiled_charsmap of keys and values, one after the other.
func charsmapOf(pairs ...string) []byte {
	units, values := make([]uint32, 256), []byte{}
	for k := 0; k < len(pairs); k += 2 {
		node, at := 0, 0
		for _, c := range []byte(pairs[k]) {
			if at = node + int(c); units[at] == 0 {
				units[at] = uint32(c) | uint32(at^len(units))<<10
				units = append(units, make([]uint32, 256)...)
			}
			node = at ^ int(units[at]>>10)
		}
		units[at] |= 1 << 8
		units[node] = uint32(len(values))
		values = append(append(values, pairs[k+1]...), 0)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return append(b, values...)
}

// TestGraphemesWithoutKeyGoByCharacter compares with texts of tokenizers 0.23.3.
func TestGraphemesWithoutKeyGoByCharacter(t *testing.T) {
	t.Parallel()
	chars, err := newCharsmap(charsmapOf("\u200c", " ", "ﾟ", "\u309a", "ﾊﾟ", "パ", "e\u0301", "\u00e9"))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"می\u200cشود": "می شود", "aﾟ": "a\u309a", "ﾊﾟ": "ﾊ\u309a", "e\u0301": "\u00e9", "a\u200c": "a "} {
		in, out := new(text), new(text)
		in.set([]byte(given), 0)
		if (precompiled{chars}).normalize(in, out); string(out.b) != want {
			t.Errorf("%q becomes %q, want %q", given, out.b, want)
		}
	}
}

// TestUserPiecesAreNotNormalized compares with pieces of sentencepiece 0.2.3.
func TestUserPiecesAreNotNormalized(t *testing.T) {
	t.Parallel()
	for _, kind := range []byte{1, 2} {
		data := appendField(unigramModel("<unk>", "<s>", "</s>", "<turn>", "▁", "a", "T", "<", "u", "r", "n", ">"), 2, []byte{3 << 3, kind})
		words, err := parseSentencePiece(appendField(data, 3, appendField(nil, 2, charsmapOf("t", "T", "<t", "a"))), false, false)
		if err != nil {
			t.Fatal(err)
		}
		if e := words.Encode("ta<turn>t"); !slices.Equal(e.IDs, []int32{4, 6, 5, 3, 6}) || e.Offsets[3] != [2]int{2, 8} {
			t.Errorf("kind %d: ids are %v, offsets %v", kind, e.IDs, e.Offsets)
		}
	}
}

var xlmPieces = []string{"<unk>", "<s>", "</s>", "▁", "▁the", "▁cat", "s", "at", "c", "a", "t", "▁s", "é", "h", "e"}

// writeXLM writes a folder with a sentencepiece.bpe.model and other files.
func writeXLM(t *testing.T, model []byte, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["sentencepiece.bpe.model"] = string(model)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPiecesOfXLMRobertaAreShifted compares with the rule of the reference: an unknown piece
// is 3, piece n is n+1, between <s> 0 and </s> 2.
func TestPiecesOfXLMRobertaAreShifted(t *testing.T) {
	t.Parallel()
	data := unigramModel(xlmPieces...)
	base, err := parseSentencePiece(data, false, false)
	if err != nil {
		t.Fatal(err)
	}
	words, err := Open(writeXLM(t, data, map[string]string{"config.json": `{"model_type": "xlm-roberta"}`}))
	if err != nil {
		t.Fatal(err)
	}
	shift := func(text string) (ids []int32) {
		for _, id := range base.Encode(text).IDs {
			if ids = append(ids, id+1); id == 0 {
				ids[len(ids)-1] = 3
			}
		}
		return ids
	}
	texts := []string{"the cat sat", "the cats, é", " at  the ", "", "zz the", "théâtre", "the\tcat", "sat at the cat"}
	for _, text := range texts {
		want := append(append([]int32{0}, shift(text)...), 2)
		if got := words.Encode(text).IDs; !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	t.Logf("compared %d texts", len(texts))
	pair := words.EncodePair("the", "cat")
	want := slices.Concat([]int32{0}, shift("the"), []int32{2, 2}, shift("cat"), []int32{2})
	if !slices.Equal(pair.IDs, want) || slices.Max(pair.Types) != 0 {
		t.Errorf("%v of types %v, want %v", pair.IDs, pair.Types, want)
	}
	mask := int32(len(xlmPieces) + 1)
	if got := words.Encode("the <mask> cat").IDs; !slices.Contains(got, mask) || words.Size() != int(mask)+1 {
		t.Errorf("%v of %d tokens, <mask> is %d", got, words.Size(), mask)
	}
	for want, open := range map[string]func() error{
		`tokenizer_class "NllbTokenizer" of model_type "" has ids of its own`: func() error {
			_, err := Open(writeXLM(t, data, map[string]string{"tokenizer_config.json": `{"tokenizer_class": "NllbTokenizer"}`}))
			return err
		},
		"piece 1 is not <s>": func() error {
			_, err := Open(writeXLM(t, unigramModel("<unk>", "a"), map[string]string{"tokenizer_config.json": `{"tokenizer_class": "XLMRobertaTokenizer"}`}))
			return err
		},
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

// TestJSONKeepsUserPieces compares the ids of models without other rules, as Gemma's, with the
// ids of their JSON.
func TestJSONKeepsUserPieces(t *testing.T) {
	t.Parallel()
	plain := appendField(unigramModel("<unk>", "<s>", "</s>", "<turn>", "▁▁", "\n\n", "▁", "a", "b", "\n", "ab", "▁a", "<", ">"), 3, []byte{3 << 3, 0, 4 << 3, 0})
	parts := []string{" ", "  ", "a", "b", "<turn>", "\n", "\n\n", "<s>", "é"}
	for _, kind := range []byte{1, 2} {
		words, err := parseSentencePiece(appendField(plain, 2, []byte{3 << 3, kind}), true, false)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(words.JSON())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6561 {
			text := ""
			for ; i > 0; i /= 9 {
				text += parts[i%9]
			}
			want, got := words.Encode(text).IDs, again.Encode(text).IDs
			if !slices.Equal(got, want) || strings.Contains(text, "<turn>") != slices.Contains(got, 3) {
				t.Fatalf("kind %d, %q: the JSON gives %v, the model %v", kind, text, got, want)
			}
		}
	}
	words, err := parseSentencePiece(unigramModel("<unk>", "<s>", "</s>", "<turn>", "▁", "a", "b", "▁b"), true, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := words.Encode("a<turn>b").IDs; !slices.Equal(got, []int32{1, 4, 5, 3, 6}) {
		t.Errorf("ids are %v", got)
	}
}

// FuzzXLMRoberta reads damaged models.
func FuzzXLMRoberta(f *testing.F) {
	f.Add(unigramModel(xlmPieces...), "the cat")
	f.Add(unigramModel("<unk>", "<s>", "</s>"), "é")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		words, err := parseXLMRoberta(data)
		if err != nil {
			return
		}
		for _, id := range words.Encode(text).IDs {
			if id < 0 || int(id) >= words.Size() {
				t.Errorf("id %d of %d", id, words.Size())
			}
		}
	})
}
