package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// inspectCmd is the verb inspect.
type inspectCmd struct {
	Model string `placeholder:"DIR" help:"The model that a saved generation belongs to."`

	Path string `arg:"" optional:"" help:"A run, checkpoint or model folder, with --model a saved generation, or the word mechanisms. The machine if not given."`
}

func (c *inspectCmd) Run(e *env) error {
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	var err error
	switch {
	case c.Model != "" && c.Path == "":
		return inputf("--model: needs the path of a saved generation beside it")
	case c.Model != "":
		err = input(inspectGeneration(w, c.Path, c.Model))
	case c.Path == "mechanisms":
		err = inspectMechanisms(w)
	case c.Path != "":
		err = input(inspectModel(w, c.Path))
	default:
		err = inspectMachine(w)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// inspectMachine prints what computes here, and which forms it would take.
func inspectMachine(w io.Writer) error {
	m := bench.Describe(100 * time.Millisecond)
	fmt.Fprintf(w, "processor\t%v\n", m.CPU)
	fmt.Fprintf(w, "kernels\t%s\n", m.Why)
	fmt.Fprintf(w, "there are\t%s (%s=NAME asks for another)\n", strings.Join(cpu.Available(), ", "), cpu.Variable)
	fmt.Fprintf(w, "threads\t%d\n", m.Threads)
	fmt.Fprintf(w, "peak\t%.1f GFLOP/s a core (float32 multiply-adds, measured)\n", m.Peak/1e9)
	fmt.Fprintf(w, "go\t%s\n", m.Go)
	fmt.Fprintf(w, "\nmechanism\tD\tfeatures\tchunk\tlinear from N\tcausal from N\n")
	for _, name := range mechanism.Names() {
		for _, d := range []int{16, 32, 64, 128} {
			mech, err := mechanism.New[float32](name, mechanism.Options{Width: d})
			if err != nil {
				return err
			}
			if !mech.Traits().Linear {
				continue
			}
			s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: 1, D: d, Dv: d, Form: attention.Linear}
			p := mech.Plan(s)
			s.Form = attention.Auto
			full := switchLengths(mech, s).Forward
			s.Causal = true
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", name, d, p.F, p.Chunk, full, switchLengths(mech, s).Forward)
		}
	}
	return nil
}

// inspectMechanisms prints the catalogue, and which laws its mechanisms were
// held to.
func inspectMechanisms(w io.Writer) error {
	for _, name := range mechanism.Names() {
		row, err := mechanism.Lookup(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n\t%s\n", row.Name, row.Doc, row.Traits)
	}
	fmt.Fprintln(w, "\nMixers, which own their projections:")
	for _, name := range nn.MixerNames() {
		row, _ := nn.LookupMixer(name)
		fmt.Fprintf(w, "%s\t%s\n\t%s\n", row.Name, row.Doc, row.Traits)
	}
	fmt.Fprintf(w, "\nHeld in float32 and float64 by go test ./mechanism -run TestLaws:\n\n%v", mechanism.Conformance())
	return nil
}

// loadModel reads the model of a run, of a checkpoint, or of a folder that
// holds nothing but a model.
func loadModel(path string) (*model.Model[float32], error) {
	if _, err := os.Stat(filepath.Join(path, model.WeightsFile)); err == nil {
		return model.Load[float32](path)
	}
	m, _, err := train.Load(path)
	return m, err
}

// inspectModel prints what a model is and what its attention does.
func inspectModel(w io.Writer, path string) error {
	m, err := loadModel(path)
	if err != nil {
		return err
	}
	c := m.Config()
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "config\t%s\n", text)
	fmt.Fprintf(w, "parameters\t%d in %d arrays\n", m.Params().Size(), len(m.Params().All()))
	fmt.Fprintf(w, "training\t%s a token at context %d\n", amountText(c.TrainFLOPs(1), "FLOP"), c.Context)
	mixer, err := c.Mixer()
	if err != nil {
		return err
	}
	if a, ok := mixer.(*nn.Attention[float32]); ok {
		inspectAttention(w, a, c)
	} else if mixer != nil {
		fmt.Fprintf(w, "mixer\t%s, which owns its projections\n", c.Mechanism)
	}
	if c.Decodes() {
		if err := inspectDecoding(w, m, mixer.Traits()); err != nil {
			return err
		}
	}
	for _, x := range m.Params().All() {
		fmt.Fprintf(w, "  %s\t%v\n", x.Name, x.Shape)
	}
	return nil
}

// inspectAttention prints how attention runs at the model's context.
func inspectAttention(w io.Writer, a *nn.Attention[float32], c model.Config) {
	s := attention.Shape{B: 1, H: c.Heads, Hkv: c.Heads, N: c.Context, M: c.Context, D: a.D, Dv: a.D, Causal: c.Causal()}
	p := a.Mechanism.Plan(s)
	fmt.Fprintf(w, "attention\t%d heads of width %d, %s form at this context", c.Heads, a.D, p.Form)
	if a.Mechanism.Traits().Linear {
		fmt.Fprintf(w, "; linear from N = %d on", switchLengths(a.Mechanism, s).Forward)
	}
	fmt.Fprintln(w)
}

// inspectDecoding prints what a decoder remembers.
func inspectDecoding(w io.Writer, m *model.Model[float32], x attention.Traits) error {
	session, err := m.NewSession(1)
	if err != nil {
		return err
	}
	grows := "whatever the length"
	if !x.Streaming {
		grows = "before the first token, and growing"
	}
	fmt.Fprintf(w, "decoding\t%s of state, %s\n", bytesText(float64(session.Bytes())), grows)
	return nil
}

// inspectGeneration prints how far a saved generation is.
func inspectGeneration(w io.Writer, path, dir string) error {
	m, err := loadModel(dir)
	if err != nil {
		return err
	}
	g, err := generate.Load(path, m)
	if err != nil {
		return err
	}
	sampling, err := json.Marshal(g.Sampling())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "tokens\t%d\nstate\t%s\nsampling\t%s\n", g.Tokens(), bytesText(float64(g.Bytes())), sampling)
	return nil
}
