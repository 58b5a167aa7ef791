package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// ownMechanism is linear attention with a learned number and a drawn one for each head.
type ownMechanism struct {
	attention.Mechanism
	params, constants param.Set
}

func (m *ownMechanism) Params() *param.Set { return &m.params }

func (m *ownMechanism) Constants() *param.Set { return &m.constants }

func newOwn(o mechanism.Options) (attention.Mechanism, error) {
	of, err := factorised.New(attention.Spec{Name: "own", Setting: "own", Norm: attention.Unit, Scale: 1, Coef: []float64{1, 1, 0.25}, Positive: true})
	if err != nil {
		return nil, err
	}
	m := &ownMechanism{Mechanism: of}
	m.params.Add(&param.Param{Name: "gain", Shape: []int{o.Heads}, Data: make([]float, o.Heads), Grad: make([]float, o.Heads)})
	m.constants.Add(&param.Param{Name: "draw", Shape: []int{o.Heads}, Data: make([]float, o.Heads)})
	m.constants.All()[0].Data[0] = float(o.Seed % 1000)
	return m, nil
}

// A mechanism of one's own has its numbers in the model and in its files.
func TestOwnMechanismIsSavedAndRead(t *testing.T) {
	c := tiny(Decoder, "own")
	if _, err := New(c, rng.New(1)); err == nil {
		t.Error("a mechanism without a factory is accepted")
	}
	c.Factories = map[string]Factory{"own": NewFactory(newOwn)}
	m, err := New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	gain, err := m.Params().Get("layers.1.attn.gain")
	if err != nil {
		t.Fatal(err)
	}
	gain.Data[2] = 7
	b := batch(c, 1, 2, 5, false)
	logits := func(m *Model) []float {
		dst := make([]float, 10*c.Vocab)
		if err := m.Logits(t.Context(), b, dst); err != nil {
			t.Fatal(err)
		}
		return dst
	}
	want, dir := logits(m), t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.HasSuffix(err.Error(), "; one of your own needs its factory, which farfield.WithFactories and LoadWith take") {
		t.Errorf("Load without the factory: %v", err)
	}
	read, err := LoadWith(dir, c.Factories)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits(read), want) || read.WeightSum() != m.WeightSum() {
		t.Error("the model that was read is another")
	}
	for i, p := range m.Constants().All() {
		if !slices.Equal(p.Data, read.Constants().All()[i].Data) {
			t.Errorf("%s: was %v, is %v", p.Name, p.Data, read.Constants().All()[i].Data)
		}
	}
}

// An exchange puts a mechanism of one's own into a layer.
func TestOwnMechanismIsExchanged(t *testing.T) {
	m, err := New(tiny(Decoder, "softmax"), rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	y, err := m.Exchanged(Exchange{Mechanism: "own", Layers: []int{1}, Factory: NewFactory(newOwn)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Params().Get("layers.1.attn.gain"); err != nil {
		t.Error(err)
	}
	if _, err := y.Params().Get("layers.0.attn.gain"); err == nil {
		t.Error("layer 0 has the mechanism as well")
	}
	if m.Config().Factories != nil {
		t.Error("the model before the exchange has the factory")
	}
}

func TestFactoriesAreChecked(t *testing.T) {
	for want, factories := range map[string]map[string]Factory{
		"factories: own has no function": {"own": {}},
		"factories: softmax is the name": {"softmax": NewFactory(newOwn)},
		"factories: mamba-2 is the name": {"mamba-2": NewFactory(newOwn)},
	} {
		c := tiny(Decoder, "softmax")
		c.Factories = factories
		if _, err := New(c, rng.New(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
