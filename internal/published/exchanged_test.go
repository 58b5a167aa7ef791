package published

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
)

const exchangeText = "the cat sat on a mat, and dogs ran in the rain! the sun was red, and the cat ran to the dogs on the mat. a cat and a dog sat in the sun; the rain ran. "

// writeExchanged writes the exchanged model of testdata/tiny.
func writeExchanged(t *testing.T) string {
	t.Helper()
	m, err := Open("../../pretrained/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.ExchangeSubject()
	if err != nil {
		t.Fatal(err)
	}
	windows, err := m.Windows(strings.Repeat(exchangeText, 8), 16)
	if err != nil {
		t.Fatal(err)
	}
	calibration, held, err := exchange.CutWindows(windows, 1000)
	if err != nil {
		t.Fatal(err)
	}
	cells, block, window := 16, 4, 2
	x, err := exchange.Run(context.Background(), s, exchange.Texts{Calibration: calibration, HeldOut: held}, exchange.Options{Cells: &cells, Block: &block, Window: &window, Length: 16})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "exchanged")
	if err := exchanged.Write(dir, "../../pretrained/testdata/tiny", x.Manifest(), x.Numbers(), nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExchangedModelOpensAsAFolder(t *testing.T) {
	t.Parallel()
	dir := writeExchanged(t)
	if !IsFolder(dir) {
		t.Fatal("the folder of an exchanged model is none that Open reads")
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := Open("../../pretrained/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	embed := func(m *Model) []float32 {
		v, err := m.Embed(context.Background(), []string{exchangeText[:40]})
		if err != nil {
			t.Fatal(err)
		}
		return v[0]
	}
	if slices.Equal(embed(m), embed(own)) {
		t.Error("the vectors are those of the trained model")
	}
	again, err := Open(dir)
	if err != nil || !slices.Equal(embed(again), embed(m)) {
		t.Errorf("opened twice, the vectors differ: %v", err)
	}
	back, err := OpenWith(dir, Options{Exchange: &model.Exchange{Mechanism: "softmax"}})
	if err != nil || !slices.Equal(embed(back), embed(own)) {
		t.Errorf("softmax put back has other vectors: %v", err)
	}
	second, err := OpenWith(dir, Options{Exchange: &model.Exchange{Mechanism: "multipole", Order: 2}})
	if err != nil || slices.Equal(embed(second), embed(m)) {
		t.Errorf("order 2 changes nothing: %v", err)
	} else if p, err := second.Model().Constants().Get("layers.0.attn.codebook"); err != nil {
		t.Error(err)
	} else if q, _ := m.Model().Constants().Get("layers.0.attn.codebook"); !slices.Equal(p.Data, q.Data) {
		t.Error("with another order the codebook is another one")
	}
	if _, err := OpenWith(dir, Options{Exchange: &model.Exchange{Mechanism: "multipole", Set: map[string]string{"centres": "input"}}}); err != nil {
		t.Errorf("clusters of the input in place of the codebook: %v", err)
	}
	to := t.TempDir()
	if err := m.Save(to); err == nil || !strings.Contains(err.Error(), "has mechanism multipole") {
		t.Errorf("Save of a function that the family has not: %v", err)
	}
	if err := WriteLike(filepath.Join(to, "like"), "../../pretrained/testdata/tiny", m.Model()); err == nil || !strings.Contains(err.Error(), "has mechanism multipole") {
		t.Errorf("WriteLike of a function that the family has not: %v", err)
	}
	local, err := mechanism.New("local", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	restore := model.WrapMechanisms(own.Model(), func(string, attention.Mechanism) attention.Mechanism { return local })
	if err := WriteLike(filepath.Join(to, "like"), "../../pretrained/testdata/tiny", own.Model()); err == nil || !strings.Contains(err.Error(), "WrapMechanisms") {
		t.Errorf("WriteLike of a wrapped function: %v", err)
	}
	restore()
	if list, _ := os.ReadDir(to); len(list) > 0 {
		t.Errorf("%v is written", list)
	}
	if x, err := m.KeyDistance(context.Background(), m.Tokenizer().Encode(exchangeText[:40]).IDs); err != nil || !(x > 0.5 && x < 2) || m.Calibration() == nil {
		t.Errorf("keys of the calibration's text are %g times as far: %v", x, err)
	}
}

func TestExchangeSubjectsAreRefusedByName(t *testing.T) {
	t.Parallel()
	refused := 0
	for name, text := range tinyConfigs {
		dir := t.TempDir()
		writeFolder(t, dir, text)
		m, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.ExchangeSubject()
		c := m.Config()
		for want, is := range map[string]bool{"encoder-decoder": c.Kind == model.EncoderDecoder, "bias by distance": c.RelativeBuckets > 0, "reads no texts": c.Inputs > 0} {
			if is {
				if refused++; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), m.Family()) {
					t.Errorf("%s: error is %v, want %q", name, err, want)
				}
			}
		}
	}
	if refused < 3 {
		t.Errorf("%d folders are refused", refused)
	}
}

// Windows of an encoder have special tokens at their ends; together they have all tokens of the text
// but the last.
func TestWindowsCoverTheText(t *testing.T) {
	t.Parallel()
	m, err := Open("../../pretrained/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	all := m.Tokenizer().Encode(exchangeText).IDs
	list, err := m.Windows(exchangeText, 9)
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	for _, w := range list {
		if len(w) != 9 || w[0] != all[0] || w[8] != all[len(all)-1] {
			t.Fatalf("a window is %v, the text %v", w, all)
		}
		got = append(got, w[1:8]...)
	}
	if inner := all[1 : len(all)-1]; len(inner)-len(got) >= 7 || !slices.Equal(got, inner[:len(got)]) {
		t.Errorf("the windows have %v of %v", got, inner)
	}
	if one, err := m.Windows("the cat", 9); err != nil || len(one) != 1 || len(one[0]) >= 9 {
		t.Errorf("a short text has the windows %v: %v", one, err)
	}
	if _, err := m.Windows("the cat", 2); err == nil {
		t.Error("windows of special tokens alone are made")
	}
}
