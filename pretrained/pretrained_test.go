package pretrained_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/pretrained"
)

// Forward gives the rows of the last layer, which are the last of the hidden rows; Save gives a folder
// with the same outputs; and an error can be told apart.
func TestFolderGivesRowsAndItself(t *testing.T) {
	ctx := context.Background()
	m, err := pretrained.Open(tiny, pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	words, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	ids := words.Encode("the cat sat on a mat.").IDs
	in := &pretrained.Input{B: 1, N: len(ids), IDs: ids, Hidden: true}
	out, err := m.Forward(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	c := m.Model().Config()
	if n := len(ids) * c.Width; len(out.LastHidden) != n || len(out.Hidden) != (c.Layers+1)*n || !slices.Equal(out.Hidden[c.Layers*n:], out.LastHidden) || out.Logits != nil {
		t.Errorf("%d rows, %d hidden rows, %d logits for %d tokens", len(out.LastHidden), len(out.Hidden), len(out.Logits), len(ids))
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := pretrained.Open(dir, pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.Forward(ctx, in); err != nil || !slices.Equal(same.LastHidden, out.LastHidden) {
		t.Errorf("the saved folder has other outputs: %v", err)
	}
	if _, err := m.Forward(ctx, &pretrained.Input{B: 1, N: 2, IDs: []int32{0}}); err == nil {
		t.Error("one token for two is taken")
	}
	if _, err := pretrained.Open(t.TempDir(), pretrained.Options{}); err == nil || errors.Is(err, farfield.ErrInUse) {
		t.Errorf("an empty folder: %v", err)
	}
}
