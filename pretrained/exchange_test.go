package pretrained_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/pretrained"
)

const (
	tiny         = "testdata/tiny"
	exchangeText = "the cat sat on a mat, and dogs ran in the rain! the sun was red, and the cat ran to the dogs on the mat. a cat and a dog sat in the sun; the rain ran. "
)

func init() { exchange.MostTimed = 512 }

// A folder whose codebooks are of interpolated positions is opened with them.
func TestExchangedFolderInterpolatesPositions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "long")
	cells, text := 8, strings.Repeat(exchangeText, 12)
	if _, err := pretrained.WriteExchanged(context.Background(), dir, tiny, []string{text}, pretrained.ExchangeOptions{Cells: &cells, Length: 48, Positions: pretrained.Interpolate}); err != nil {
		t.Fatal(err)
	}
	m, err := published.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Calibration(); c.Window != 48 || c.Length != 48 {
		t.Errorf("windows have %d tokens for a length of %d", c.Window, c.Length)
	}
	v, err := m.EmbedWith(context.Background(), []string{text}, published.EmbedOptions{MaxTokens: 48})
	if err != nil || v.Truncated != 1 || v.MaxTokens != 48 {
		t.Errorf("a text of 48 tokens: %+v, %v", v, err)
	}
	if _, err := pretrained.WriteExchanged(context.Background(), dir+"2", tiny, []string{text}, pretrained.ExchangeOptions{Cells: &cells, Length: 48}); err != nil {
		t.Fatal(err)
	}
	short, err := published.Open(dir + "2")
	if err != nil || short.Calibration().Window != 16 || short.Config().Context != 16 {
		t.Errorf("without interpolation windows have %+v: %v", short.Calibration(), err)
	}
}

func TestWriteExchangedRefusesUpdates(t *testing.T) {
	out := filepath.Join(t.TempDir(), "exchanged")
	_, err := pretrained.WriteExchanged(context.Background(), out, tiny, []string{strings.Repeat(exchangeText, 8)}, pretrained.ExchangeOptions{Length: 16, Updates: -3})
	if err == nil || !strings.Contains(err.Error(), "updates: -3") {
		t.Errorf("fewer updates than none: %v", err)
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("a folder is written")
	}
}
