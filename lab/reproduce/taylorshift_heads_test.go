package reproduce

import (
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// TestHeadsRow has the table of a row whose numbers are made up.
func TestHeadsRow(t *testing.T) {
	o := new(Options)
	r := new(Results)
	c := headsConfigs(o)[2]
	addResult(t, r, c.name(), []timing{
		{Curve: "direct", N: 16, Ms: 200}, {Curve: "linear", N: 16, Ms: 20}, {Curve: "softmax", N: 16, Ms: 100},
		{Curve: memory("linear"), N: 16, Ms: 1, Bytes: 3 << 20},
	})
	out, err := headsOutcome(o, r)
	if err != nil {
		t.Fatal(err)
	}
	if speed := out.Tables[1]; len(speed.Rows) != 1 || strings.Join(speed.Rows[0], " ") != "16 16 4341 10.0 9713 100 20.0 2.24 10.0" {
		t.Errorf("speed %+v", speed)
	}
	// The formula is of attention alone, the published 2135 MiB are of the model.
	if mem := out.Tables[2]; len(mem.Rows) != 1 || strings.Join(mem.Rows[0], " ") != "16 16 2135 2068 – 459 310 3.00 –" {
		t.Errorf("memory %+v", mem)
	}
	l, err := headsLessons(&Options{Budget: Full})
	if err != nil || len(l[0].Methods) != 1+len(headsTable) {
		t.Fatalf("%+v, %v", l, err)
	}
	for i, p := range headsTable {
		if c := l[0].configFor(&l[0].Methods[1+i], 1, 1); c.Model.Heads != p.Heads || c.Model.Width != 256 {
			t.Errorf("model %+v, %d heads were expected", c.Model, p.Heads)
		}
	}
}

// TestHeadsSpeed measures one number of heads for a moment.
func TestHeadsSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("times models of the published size")
	}
	c := headsConfig{Heads: 64, Images: 1, Each: time.Millisecond}
	list, err := c.run(&Work{Ctx: t.Context()})
	if err != nil || len(list) != 2*len(headsCurves) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, x := range list {
		if x.Ms <= 0 || x.N != 64 {
			t.Errorf("timing %+v", x)
		}
	}
}

// TestFormed has a mechanism compute in the form that is asked for.
func TestFormed(t *testing.T) {
	m, err := mechanism.New("taylorshift", mechanism.Options{Heads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var seen attention.Form
	f := &formed{spy{m, &seen}, attention.Linear}
	x := tensor.NewHeads(1, 1, 4, 4)
	for i := range x.Data {
		x.Data[i] = float32(i%3) + 1
	}
	if err := f.Forward(tensor.NewHeads(1, 1, 4, 4), &attention.Call{Q: x, K: x, V: x}, nil); err != nil || seen != attention.Linear {
		t.Errorf("form %v, %v", seen, err)
	}
}

// spy tells the form of a call.
type spy struct {
	attention.Mechanism
	form *attention.Form
}

func (s spy) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	*s.form = c.Form
	return s.Mechanism.Forward(out, c, keep)
}
