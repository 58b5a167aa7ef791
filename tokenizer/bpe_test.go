package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLongWordsMergeByRankAndPlace: the queue merges as the definition does, also where pairs share a rank and
// where a merge makes a pair of a lower rank.
func TestLongWordsMergeByRankAndPlace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := &bpe{pairs: map[uint64]merge{}}
		letters, ids := 1+random.Int32N(4), int32(12)
		for a := range ids {
			for b := range ids {
				if c := max(a, b, letters-1) + 1; c < ids && random.IntN(2) == 0 {
					m.pairs[pairKey(a, b)] = merge{random.Int32N(20), c}
				}
			}
		}
		word := make([]symbol, 1+random.IntN(200))
		for i := range word {
			word[i] = symbol{id: random.Int32N(letters), start: int32(i), end: int32(i + 1)}
		}
		var want []symbol
		for _, s := range word {
			want = append(want, symbol{id: s.id, start: s.start, end: s.end})
		}
		for {
			best, at := merge{rank: -1}, 0
			for i := range want[1:] {
				if c, ok := m.pairs[pairKey(want[i].id, want[i+1].id)]; ok && (best.rank < 0 || c.rank < best.rank) {
					best, at = c, i
				}
			}
			if best.rank < 0 {
				break
			}
			want[at].id, want[at].end = best.id, want[at+1].end
			want = slices.Delete(want, at+1, at+2)
		}
		var queue mergeQueue
		m.mergeLong(word, &queue)
		var got []symbol
		for _, s := range word {
			if s.id >= 0 {
				got = append(got, symbol{id: s.id, start: s.start, end: s.end})
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// TestLongestWordsAreEncoded: a quadratic merge would take a minute.
func TestLongestWordsAreEncoded(t *testing.T) {
	t.Parallel()
	words, err := Train(t.Context(), []byte(strings.Repeat("the theory of the there ", 50)), 280)
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"a", "the", " ", "\U0001F600", "e\u0301"} {
		text := strings.Repeat(unit, 1<<18/len(unit))
		back, err := words.Decode(words.AppendIDs(nil, text, true))
		if err != nil || back != text {
			t.Errorf("%q repeated: %d bytes come back as %d, %v", unit, len(text), len(back), err)
		}
	}
}

func TestDecodingWritesTheReferencesText(t *testing.T) {
	t.Parallel()
	const start = `{"model":{"type":"BPE","vocab":{"Ø":0,"â":1,"Ĥ":2,"a":3,"a▁":4,"▁▁":5},"merges":[]},`
	for _, c := range []struct {
		decoder string
		ids     []int32
		want    string
	}{
		{`"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}}`, []int32{1, 1, 2, 3, 2, 2}, "\ufffd\ufffda\ufffd\ufffd"},
		{`"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}}`, []int32{5, 3, 5}, "a  "},
		{`"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}}`, []int32{4, 4}, "aa "},
		{`"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}}`, []int32{4, 5}, "a   "},
	} {
		v, err := Parse([]byte(start + c.decoder))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Decode(c.ids); err != nil || got != c.want {
			t.Errorf("%s %v: %q, %v, want %q", c.decoder, c.ids, got, err, c.want)
		}
	}
}

func TestFilesThatLackTheUnknownTokenAreRefused(t *testing.T) {
	t.Parallel()
	learned, err := Train(t.Context(), []byte("the cat"), 256)
	if err != nil {
		t.Fatal(err)
	}
	complete := strings.Replace(string(learned.JSON()), `"unk_token":null`, `"unk_token":"z"`, 1)
	for text, want := range map[string]string{
		complete: "",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`:                                                                      "",
		`{"model":{"type":"BPE","unk_token":"z","vocab":{"a":0},"merges":[]}}`:                                                      `unk_token "z" is not in the vocabulary of 1`,
		`{"model":{"type":"WordLevel","unk_token":"z","vocab":{"a":0}}}`:                                                            `unk_token "z" is not in the vocabulary of 1`,
		`{"model":{"type":"Unigram","vocab":[["a",-1]]}}`:                                                                           "unk_id is missing",
		`{"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"<0x62>":1},"merges":[]}}`: "byte 0x62 has no other token",
	} {
		if _, err := Parse([]byte(text)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.120s: %v, want %q", text, err, want)
		}
	}
}
