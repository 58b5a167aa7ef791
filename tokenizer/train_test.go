package tokenizer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestTrainMergesMostFrequentPairs(t *testing.T) {
	t.Parallel()
	v, err := Train(context.Background(), []byte(strings.Repeat("abab ab. ", 10)), 258)
	if err != nil {
		t.Fatal(err)
	}
	if v.Size() != 258 || v.Token(256) != "ab" {
		t.Fatalf("size is %d, token 256 is %q", v.Size(), v.Token(256))
	}
	if got := v.Encode("ab\xff").IDs; !slices.Equal(got, []int32{256, 255}) {
		t.Errorf("ids are %v", got)
	}
}

func TestTrainedTokensDecodeToText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "line %d: naïve façade, %d €\n", i, i*i)
	}
	v, err := Train(context.Background(), []byte(b.String()), 600)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Train(context.Background(), []byte(b.String()), 600)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(v.JSON(), again.JSON()) {
		t.Error("two trainings differ")
	}
	if v.Size() < 300 || v.Size() > 600 {
		t.Errorf("%d tokens", v.Size())
	}
	text := "line 17: unseen façade \x00\xf0日本\n\n  x"
	var out []byte
	for _, id := range v.AppendIDs(nil, text, true) {
		out = append(out, v.Bytes(id)...)
	}
	if string(out) != text {
		t.Errorf("%q came back as %q", text, out)
	}
}

func TestLongRunsOfOneLetterTakeLinearTime(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", 1<<20)
	v, err := Train(context.Background(), []byte(text), 270)
	if err != nil {
		t.Fatal(err)
	}
	longest := 0
	for id := range v.Size() {
		longest = max(longest, len(v.Bytes(int32(id))))
	}
	if ids := v.AppendIDs(nil, text, true); len(ids) != len(text)/longest {
		t.Errorf("%d tokens of a run of %d, the longest token has %d", len(ids), len(text), longest)
	}
}
