package inference

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func TestTextsThatCannotBeEncodedAreNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	vocab, err := token.NewCharVocabulary([]byte("the"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: vocab.Size(), Layers: 1, Heads: 1, Width: 8, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax"}, rng.New(1))
	if err == nil {
		err = checkpoint.SaveModel(dir, m, vocab)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := text.NewEmbedder(0)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"the", "XYZ"}
	var one *TextError
	if _, err := x.Embed(t.Context(), nil, texts); !errors.As(err, &one) || one.Text != 1 {
		t.Errorf("error is %v, want one of text 1", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Embed(ended, nil, texts); errors.As(err, &one) || !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	failed := errors.New("vector: element 0 is NaN")
	if err := text.findText(t.Context(), texts[:1], failed); err != failed {
		t.Errorf("error is %v, want %v", err, failed)
	}
}
