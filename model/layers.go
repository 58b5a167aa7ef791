package model

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// layer is a layer of attention with the prefix of its weights' names.
type layer struct {
	name string
	// number is the number of the layer in the stack, or noLayer for Config.Mechanism.
	number int
	attn   *nn.Attention
	built  attention.Mechanism // the mechanism of the configuration
}

// mechanism returns the mechanism of the layer without the wrappers of Watch.
func (l *layer) mechanism() attention.Mechanism {
	m := l.attn.Mechanism
	for {
		w, is := m.(*watched)
		if !is {
			return m
		}
		m = w.Mechanism
	}
}

// WrapMechanisms replaces the mechanism of each attention layer by the result of wrap, which
// gets the name of the layer, such as layers.0.attn, and its mechanism. The result may observe
// or change calls. restore puts the mechanisms back. To give a model a mechanism of your own
// for good, use Config.Factories.
//
// Until restore, Params holds the learned parameters of the new mechanisms, such as
// layers.0.attn.scale, and not those that no layer uses any more. WrapMechanisms panics if the
// layer has a parameter of such a name already, as param.Set.Add does. Make optimisers and
// other users of Params after the call. Save refuses such a model, since files do not describe
// it. Models that Share returned get the new mechanisms as well. Redraw does not change them.
func WrapMechanisms(m *Model, wrap func(name string, of attention.Mechanism) attention.Mechanism) (restore func()) {
	var before []attention.Mechanism
	var undivided []bool
	for _, l := range m.layers {
		before, undivided = append(before, l.attn.Mechanism), append(undivided, l.attn.Undivided)
		l.attn.Mechanism, l.attn.Undivided = wrap(l.name, l.attn.Mechanism), true
	}
	m.collectParams()
	return func() {
		for i, l := range m.layers {
			l.attn.Mechanism, l.attn.Undivided = before[i], undivided[i]
		}
		m.collectParams()
	}
}

// CheckMechanisms returns an error that names the first layer whose mechanism WrapMechanisms has
// set, so that it is not the mechanism of the configuration.
func (m *Model) CheckMechanisms() error {
	for i := range m.layers {
		l := &m.layers[i]
		if of := l.mechanism(); of != l.built {
			return fmt.Errorf("%s: mechanism %s (%s) was set by WrapMechanisms, the configuration has %s (%s), and a file would describe that; restore the mechanisms first",
				l.name, of.Traits().Name, of.Setting(), l.built.Traits().Name, l.built.Setting())
		}
	}
	return nil
}

// collectParams sets the weights to those of the model and of the mechanisms of its layers.
func (m *Model) collectParams() {
	unused, used := map[*float]bool{}, map[*float]bool{} // by first element: sets share elements under other names
	for i := range m.layers {
		l := &m.layers[i]
		for _, p := range l.built.Params().All() {
			if len(p.Data) > 0 {
				unused[&p.Data[0]] = true
			}
		}
	}
	for i := range m.layers {
		for _, p := range m.layers[i].mechanism().Params().All() {
			if len(p.Data) > 0 {
				delete(unused, &p.Data[0])
			}
		}
	}
	var set param.Set
	for _, p := range m.built {
		if len(p.Data) > 0 && unused[&p.Data[0]] {
			continue
		}
		set.Add(p)
		if len(p.Data) > 0 {
			used[&p.Data[0]] = true
		}
	}
	for i := range m.layers {
		l := &m.layers[i]
		for _, p := range l.mechanism().Params().All() {
			if len(p.Data) == 0 || used[&p.Data[0]] {
				continue
			}
			used[&p.Data[0]] = true
			own := *p
			own.Name = l.name + "." + p.Name
			set.Add(&own)
		}
	}
	*m.params = set
}

// Look gets a call of attention before the mechanism of a layer computes it. name is the layer's,
// such as layers.0.attn. An error ends the pass.
type Look func(name string, of attention.Mechanism, call *attention.Call) error

// Watch makes every layer call look with each call of its mechanism before the mechanism
// computes it. restore undoes this.
func Watch(m *Model, look Look) (restore func()) {
	return WrapMechanisms(m, func(name string, of attention.Mechanism) attention.Mechanism {
		return &watched{of, func(call *attention.Call) error { return look(name, of, call) }}
	})
}

// watched passes each call to look before computing it.
type watched struct {
	attention.Mechanism
	look func(*attention.Call) error
}

func (w *watched) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.look(c); err != nil {
		return err
	}
	return w.Mechanism.Forward(out, c, keep)
}

// Redraw draws the constants of the mechanisms anew if their setting redraw divides
// updates. The numbers depend only on key and updates, so a run that continues from a
// checkpoint draws the same. Redraw returns an error if a mechanism refuses its
// options.
func (m *Model) Redraw(key rng.Key, updates int) error {
	if len(m.layers) == 0 || updates == 0 {
		return nil
	}
	key = key.Fold(uint64(updates))
	for i, l := range m.layers {
		if l.built.Constants().Size() == 0 || l.mechanism() != l.built {
			continue
		}
		name, o := m.config.layerMechanism(l.number)
		if _, own := m.config.Factories[name]; own {
			continue
		}
		every, err := mechanism.RedrawInterval(name, o)
		if err != nil {
			return err
		}
		if every == 0 || updates%every != 0 {
			continue
		}
		o.Seed = key.Uint64(uint64(i))
		drawn, err := mechanism.New(name, o)
		if err != nil {
			return err
		}
		from := drawn.Constants().All()
		for j, p := range l.built.Constants().All() {
			copy(p.Data, from[j].Data)
		}
	}
	return nil
}
