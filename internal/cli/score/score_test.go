package score

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/score"
	"github.com/farfield-ml/farfield/token"
)

// Parts of a line have one number.
func TestPartsAreOneLine(t *testing.T) {
	m, err := model.New[float32](model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 1, Width: 8, Context: 8, Positions: model.Rotary, Mechanism: "linear", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := score.New(m, token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	scored := &scoring{cmd: &Command{Top: 9}, scorer: s}
	for _, lines := range [][][]byte{{[]byte("a"), []byte("b")}, {[]byte("c\n"), []byte("d\n")}, {[]byte("e")}} {
		if err := scored.lines(lines); err != nil {
			t.Fatal(err)
		}
	}
	numbers, parts := map[string]int64{}, map[string]int64{}
	for _, x := range scored.Top {
		numbers[x.Text], parts[x.Text] = x.Number, x.Part
	}
	for i, text := range []string{"a", "b", "c", "d", "e"} {
		if number, part := []int64{1, 1, 1, 2, 3}[i], []int64{0, 2, 3, 0, 0}[i]; numbers[text] != number || parts[text] != part {
			t.Errorf("%s is line %d, part %d; want line %d, part %d", text, numbers[text], parts[text], number, part)
		}
	}
	if !slices.Equal([]int64{scored.Number, scored.Parts, scored.Offset}, []int64{3, 1, 7}) {
		t.Errorf("%d lines, %d parts, %d bytes", scored.Number, scored.Parts, scored.Offset)
	}
}
