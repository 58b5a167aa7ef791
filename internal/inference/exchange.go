package inference

import (
	"context"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/model"
)

// ExchangeSubject returns the model in the form in which package exchange replaces its attention.
// It returns an error if the model has no vocabulary, or its layers cannot have another mechanism.
func (m *Model) ExchangeSubject() (*exchange.Subject, error) {
	if m.folder != nil {
		return m.folder.ExchangeSubject()
	}
	if m.vocab == nil {
		return nil, m.vocabErr
	}
	return &exchange.Subject{Model: m.body}, nil
}

// Windows returns the tokens of a text in windows of n tokens, with the special tokens of a text. A
// last window with fewer tokens is left out unless it is the only one. Windows returns an error if
// there is no tokenizer or the vocabulary lacks a character.
func (m *Model) Windows(text string, n int) ([][]int32, error) {
	if m.folder != nil {
		return m.folder.Windows(text, n)
	}
	if n < 1 {
		return nil, fmt.Errorf("windows of %d tokens", n)
	}
	ids, err := m.vocab.Encode(nil, []byte(text))
	if err != nil {
		return nil, err
	}
	var list [][]int32
	for at := 0; at < len(ids); at += n {
		end := min(at+n, len(ids))
		if end-at < n && len(list) > 0 {
			break
		}
		list = append(list, ids[at:end])
	}
	return list, nil
}

// Calibration describes the texts and choices from which an exchanged model was made. It is nil for
// other models.
func (m *Model) Calibration() *exchanged.Calibration {
	if m.folder != nil {
		return m.folder.Calibration()
	}
	return m.calibration
}

const (
	// farKeys is the multiple of the calibrated distance of keys from which a text is of another kind if
	// held-out windows are alike. A multiple is no farther than farSpread times as much above 1 as that of
	// the farthest held-out window.
	farKeys, farSpread = 1.05, 1.5
	// lookedTokens is the number of tokens by which a text is judged, leastTokens the least. Neither
	// is more than the tokens of a window of the calibration, since keys depend on their positions.
	lookedTokens, leastTokens = 512, 64
)

// isLooked reports whether a text of n tokens is long enough to tell the distance of its keys.
func (m *Model) isLooked(n int) bool {
	c := m.Calibration()
	return c != nil && len(c.Distances) > 0 && n >= max(1, min(leastTokens, c.Window))
}

// KeyDistance returns how far the keys of the first tokens of a text lie from the centres of their
// cells, as a multiple of the distance on the texts of the exchange. It returns 0 if the model has
// no cells or there are too few tokens, and an error if ids do not fit the model or ctx ends.
func (m *Model) KeyDistance(ctx context.Context, ids []int32) (float64, error) {
	c := m.Calibration()
	if !m.isLooked(len(ids)) {
		return 0, nil
	}
	ids = ids[:min(len(ids), lookedTokens, max(1, c.Window))]
	if m.folder != nil {
		return m.folder.KeyDistance(ctx, ids)
	}
	return exchange.KeyDistance(ctx, m.body, &model.Batch{B: 1, N: len(ids), Tokens: ids}, c.Distances)
}

// NoteKeyDistance writes one warning to w if the keys of a text lie farther from their centres than
// on the texts of the exchange. Of the texts that are long enough it looks at the first, the
// second, the fourth, the eighth and so on, so that many texts cost little. It does nothing for
// models without cells.
func (m *Model) NoteKeyDistance(ctx context.Context, w io.Writer, ids []int32) {
	if m.isNoted.Load() || !m.isLooked(len(ids)) {
		return
	}
	if n := m.looked.Add(1); n&(n-1) != 0 {
		return
	}
	x, err := m.KeyDistance(ctx, ids)
	if err != nil { // the pass of the verb reports it
		return
	}
	if text := DescribeFarKeys(m.path, m.Calibration(), x); text != "" && !m.isNoted.Swap(true) {
		fmt.Fprintln(w, text)
	}
}

// DescribeFarKeys returns a warning about keys that lie x times as far from their centres as those
// of the calibration c of the model at path. It returns "" if x is no cause for one.
func DescribeFarKeys(path string, c *exchanged.Calibration, x float64) string {
	if c == nil || x <= max(farKeys, 1+farSpread*(c.Largest-1)) {
		return ""
	}
	return fmt.Sprintf("%s: keys lie %.2f times as far from the centres of their cells as in calibration: the text is of another kind, and the model loses more than exchange.md says", path, x)
}

// NoteTextDistance is NoteKeyDistance for a text that is not tokenized yet.
func (m *Model) NoteTextDistance(ctx context.Context, w io.Writer, text string) {
	if m.Calibration() == nil || m.isNoted.Load() {
		return
	}
	const most = 1 << 14 // bytes
	if ids, err := m.Encode(text[:min(len(text), most)], true); err == nil {
		m.NoteKeyDistance(ctx, w, ids)
	}
}
