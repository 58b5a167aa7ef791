package reproduce

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

var write = flag.Bool("write", false, "write the bits of short trainings to testdata")

// probe is the beginning of a training of a row.
type probe struct {
	row    *Row
	name   string // of the training, without its seed
	config train.Config
}

const (
	// probeTokens is how many positions a pass of a probe has at most, or one sample:
	// enough that sums over them are made in several parts.
	probeTokens = 4096
	// probeLarger is what weights are multiplied by after the first update: long
	// trainings end with larger ones than they begin with, and with scores that lie
	// far apart.
	probeLarger = 4
	// probeDrawn is the longest sample whose attention matrices are held, too.
	probeDrawn = 128
)

// probed lists the rows whose trainings TestBits begins: those of scores, with the options that RESULTS.md has
// them with.
var probed = map[*Row]Options{
	&fastFig2:            {},
	&fastFig4:            {Budget: Hour},
	&fastTable1:          {Budget: Hour, Seeds: 3},
	&fastLocality:        {Budget: Hour, Seeds: 3},
	&taylorShiftAccuracy: {Budget: Hour},
	&linearCopy:          {Tune: true},
	&slidesShapes:        {},
	&mqar:                {Budget: Hour},
}

// probes returns one of each training of the rows of scores, whatever its seed.
func probes(t *testing.T) (list []probe) {
	t.Helper()
	for _, r := range Rows() {
		o, ok := probed[r]
		if !ok {
			continue
		}
		pieces, err := r.Pieces(&o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pieces {
			c, training := p.Config.(train.Config)
			if name, first := strings.CutSuffix(p.Name, "-seed-1"); training && first {
				list = append(list, probe{r, name, beginning(c)})
			}
		}
	}
	return list
}

// beginning is a training of a few updates, which is left before its last: RAdam, whose
// first five are others than those that follow, makes seven.
func beginning(c train.Config) train.Config {
	updates := 2
	if c.Optimizer == train.RAdam {
		updates = 7
	}
	c.Steps, c.WarmUp = updates+1, min(c.WarmUp, 1)
	c.EvalEvery, c.EvalSamples, c.FinalSamples, c.SaveEvery = 0, 0, 0, 0
	if c.Task == "text" { // invented reviews do not grow
		c.FirstContext, c.FirstBatch = 0, 0
	}
	return c
}

// invented makes samples with the shapes of a data set from a seed: only the bits of
// results matter.
type invented struct {
	spec   task.Spec
	ragged bool // samples are of several lengths
}

// source returns what a probe learns: the task, or where that is read from files
// something of the same shape.
func (p *probe) source() (task.Source, error) {
	s := task.Spec{Name: p.config.Task, Parts: 1, Count: [3]int{54000, 6000, 10000}}
	switch s.Name {
	case "mnist":
		s.Kind, s.Metric, s.Channels, s.Length, s.Classes = task.Class, task.Accuracy, 16, 49, 10
	case "image":
		s.Kind, s.Metric, s.Vocab, s.Length, s.Classes = task.Class, task.Accuracy, 256, 1024, 10
	case "text":
		s.Kind, s.Metric, s.Vocab, s.Classes = task.Class, task.Accuracy, 257, 2
		_, err := fmt.Sscan(p.config.TaskSet["length"], &s.Length)
		return &invented{s, true}, err
	case task.CharLM:
		s.Kind, s.Metric, s.Vocab, s.Length, s.Classes = task.Next, task.Nats, shakespeareVocab, p.config.Model.Context, shakespeareVocab
	default:
		return p.config.OpenTask()
	}
	return &invented{s, false}, nil
}

func (x *invented) Spec() task.Spec { return x.spec }

func (x *invented) Baselines(int) ([]task.Baseline, error) { return nil, nil }

func (x *invented) Sample(s *task.Sample, split task.Split, i int) error {
	spec := &x.spec
	key := rng.New(uint64(split)).Fold(uint64(i))
	n := spec.Length
	if x.ragged {
		n -= key.Intn(0, n/2)
	}
	*s = task.Sample{Class: int32(key.Intn(1, spec.Classes))}
	tokens, values, labels := key.Fold(0), key.Fold(1), key.Fold(2)
	for j := range n {
		if spec.Vocab > 0 {
			s.Tokens = append(s.Tokens, int32(tokens.Intn(uint64(j), spec.Vocab)))
		}
		for c := range spec.Channels {
			s.Values = append(s.Values, float32(values.Float64(uint64(j*spec.Channels+c))))
		}
		if spec.Kind == task.Next {
			s.Labels = append(s.Labels, int32(labels.Intn(uint64(j), spec.Classes)))
		}
	}
	return nil
}

// digest makes the updates of a probe and evaluates what has come of them, and returns
// the bits of all that.
func (p *probe) digest(t *testing.T) string {
	t.Helper()
	src, err := p.source()
	if err != nil {
		t.Fatalf("%s %s: %v", p.row.Name, p.name, err)
	}
	c := p.config
	spec := src.Spec()
	c.Batch = min(c.Batch, max(1, probeTokens/spec.Length))
	if x, ok := src.(*invented); ok && c.Standardise {
		for range x.spec.Channels { // of numbers from 0 to 1
			c.InputMean, c.InputDeviation = append(c.InputMean, 0.5), append(c.InputDeviation, 0.3)
		}
	}
	r, err := train.New(c, src, "")
	if err != nil {
		t.Fatalf("%s %s: %v", p.row.Name, p.name, err)
	}
	h := sha256.New()
	for step := range 9 { // rates of learning that few updates do not come to
		note(h, optim.Cosine{Peak: c.Rate, Floor: c.MinRate, WarmUp: 3, Steps: 9}.Rate(step), optim.Linear{Peak: c.Rate, Floor: c.MinRate, WarmUp: 3, Steps: 9}.Rate(step))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	params := r.Model().Params().All()
	_, err = r.Train(ctx, train.Observer{Step: func(s train.Step) {
		note(h, s.Loss, s.Aux, s.GradNorm, s.Rate)
		switch s.Step {
		case 1:
			enlarge(params)
		case c.Steps - 1:
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%s %s: %v", p.row.Name, p.name, err)
	}
	for _, w := range append(params, r.Model().Constants().All()...) {
		note(h, w.Data)
	}
	if err := evaluated(h, r); err != nil {
		t.Fatalf("%s %s: %v", p.row.Name, p.name, err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func enlarge(params []*param.Param) {
	for _, w := range params {
		for i := range w.Data {
			w.Data[i] *= probeLarger
		}
	}
}

// evaluated notes what a model says of samples that it is judged by: as an evaluation
// sums it up, number by number, and the attention matrices of a short one.
func evaluated(h hash.Hash, r *train.Trainer) error {
	src := r.Source()
	spec := src.Spec()
	planned := false
	restore := model.Watch(r.Model(), func(_ string, of attention.Mechanism, call *attention.Call) error {
		if !planned {
			plans(h, of, call.Shape(), spec.Length)
		}
		planned = true
		return nil
	})
	score, _, err := train.Evaluate(context.Background(), r.Model(), src, spec.JudgedSplit(), 1+probeTokens/2/spec.Length)
	restore()
	if err != nil {
		return err
	}
	note(h, score.Loss, score.Value)
	samples := make([]task.Sample, 2)
	for i := range samples {
		if err := src.Sample(&samples[i], spec.JudgedSplit(), i); err != nil {
			return err
		}
	}
	b := train.PackBatch(spec, samples...)
	if spec.Kind == task.Next {
		losses := make([]float64, b.B*b.N)
		err = r.Model().Losses(context.Background(), b, losses)
		note(h, losses)
	} else {
		logits := make([]float32, max(len(b.Targets)*spec.Classes, len(b.Numbers)))
		err = r.Model().Logits(context.Background(), b, logits)
		note(h, logits)
	}
	if err != nil || spec.Length > probeDrawn {
		return err
	}
	return eachHead(r.Model(), train.PackBatch(spec, samples[0]), func(_ headPlace, a tensor.Mat) { note(h, a.Data, localityOf(a)) })
}

// plans adds the forms that a mechanism chooses for samples of every length to h; a
// probe's samples have few lengths.
func plans(h hash.Hash, of attention.Mechanism, s attention.Shape, longest int) {
	s.B = 1
	for n := range longest {
		s.N, s.M = n+1, n+1
		p := of.Plan(s)
		note(h, int64(p.Form), int64(p.Back), int64(p.Chunk))
	}
}

// note adds the bits of numbers, or of slices of them, to a digest.
func note(h hash.Hash, list ...any) {
	for _, x := range list {
		if err := binary.Write(h, binary.LittleEndian, x); err != nil {
			panic(err)
		}
	}
}

// joined reports that the compiler makes one instruction of a product and a sum.
//
//go:noinline
func joined(x, y, z float64) bool { return x*y+z != float64(x*y)+z }

// TestBits compares the bits of short trainings with BitsFile. A machine with AVX-512 compares AVX2's bits, too.
// Without -long a row has one training for each of its mechanisms, and AVX2 the trainings
// of -short.
func TestBits(t *testing.T) {
	switch {
	case cpu.ActiveSet() == cpu.Generic:
		t.Skip("plain kernels round products before they add them: their trainings have bits of their own, and no results are made with them")
	case joined(1+0x1p-30, 1-0x1p-30, -1):
		t.Skip("the compiler joins products and sums of plain Go here, so that weights begin with other bits")
	case *write && (testing.Short() || cpu.InstructionSets()[0] != cpu.AVX512):
		t.Fatal("-write is without -short, for all trainings, and needs AVX-512, for all instruction sets")
	}
	path := filepath.Join("..", "..", BitsFile)
	saved, err := os.ReadFile(path)
	if err != nil && !*write {
		t.Fatal(err)
	}
	list := probes(t)
	var text strings.Builder
	known := map[string]string{} // digests by configuration
	met := map[string]bool{}     // rows with a mechanism or mixer
	for i := range list {
		p := &list[i]
		bits := p.row.Bits(string(saved))
		own := [2]string{p.name, cpu.ActiveSet()}
		kind := p.row.Name + " " + p.config.Model.Mechanism
		isHeld := suite.IsLong() || *write || !met[kind]
		met[kind] = true
		if testing.Short() {
			isHeld = p.row == &linearCopy
		}
		if isHeld {
			config, err := json.Marshal(p.config)
			if err != nil {
				t.Fatal(err)
			}
			digest, found := known[string(config)]
			if !found {
				digest = p.digest(t)
				known[string(config)] = digest
			}
			if bits[own] != digest && !*write {
				t.Errorf("%s: a training of %s with %s has the bits %s, %s has %q", p.row.Name, p.name, cpu.ActiveSet(), digest, BitsFile, bits[own])
			}
			bits[own] = digest
		}
		fmt.Fprintf(&text, "%s %s", p.row.Name, p.name)
		for _, isa := range []string{cpu.AVX512, cpu.AVX2} {
			if digest := bits[[2]string{p.name, isa}]; digest != "" {
				fmt.Fprintf(&text, " %s=%s", isa, digest)
			}
		}
		text.WriteByte('\n')
	}
	if *write {
		if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if !t.Failed() && text.String() != string(saved) {
		t.Errorf("%s has other lines than those of the trainings", BitsFile)
	}
	if os.Getenv(cpu.Variable) == "" {
		for _, isa := range cpu.InstructionSets() {
			if isa != cpu.ActiveSet() && isa != cpu.Generic {
				t.Run(isa, func(t *testing.T) { bitsWith(t, isa) })
			}
		}
	}
	if t.Failed() {
		t.Errorf("trainings have other bits than those before, and so have their scores. Where that is meant, write the digests (go test ./reproduce -run TestBits -write, in lab)")
	}
}

// bitsWith runs TestBits in a process of its own with another instruction set.
func bitsWith(t *testing.T, isa string) {
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBits$", fmt.Sprintf("-test.short=%v", !suite.IsLong() && !*write), fmt.Sprintf("-write=%v", *write), fmt.Sprintf("-long=%v", suite.IsLong()))
	c.Env = append(os.Environ(), cpu.Variable+"="+isa)
	if text, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

func TestRowBits(t *testing.T) {
	const file = "mqar a avx512=01 avx2=02\nlinear-copy a avx512=03\n\nmqar b\nmqar c avx2=04"
	want := map[[2]string]string{{"a", "avx512"}: "01", {"a", "avx2"}: "02", {"c", "avx2"}: "04"}
	if got := mqar.Bits(file); !maps.Equal(got, want) {
		t.Errorf("digests are %v, want %v", got, want)
	}
}
