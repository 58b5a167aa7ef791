// Package inspect implements the verb inspect: the kind and content of a file or folder.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/plan"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/vectors"
	"github.com/farfield-ml/farfield/internal/conformance"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/internal/streamfile"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb inspect.
type Command struct {
	Model       string   `placeholder:"DIR" help:"Model of a saved text, to describe its state too."`
	IgnoreField []string `sep:"none" placeholder:"NAME" help:"Read a folder without a field of its config.json (repeatable)."`
	JSON        bool     `name:"json" help:"Print a JSON object; its field kind names the subject."`

	Path string `arg:"" optional:"" complete:"mechanisms-or-files" help:"File or folder, or the word mechanisms (this machine)."`
}

// Help says how it is found out.
func (c *Command) Help() string {
	return "It reads runs, checkpoints, models, published models, folders of results, states, checkpoints of streams, saved texts, arrays and results. " +
		"The kind of a file is read from its content, not its name. Large files are read by their headers, and checksums in one pass." + flags.JoinExamples(
		"farfield inspect",
		"farfield inspect mechanisms",
		"farfield inspect run/001",
		"farfield inspect all-MiniLM-L6-v2",
		"farfield inspect --json qkv.npz",
		"farfield inspect --model run/001 text.state",
	)
}

// Run describes a file or folder. It returns an error if the path cannot be read or is
// not of a known kind.
func (c *Command) Run(e *env.Env) error {
	var f *display.Finding
	var err error
	switch {
	case c.Model != "" && c.Path == "":
		return env.InputErrorf("--model: needs the path of a text in progress beside it; a model itself is read by farfield inspect %s", c.Model)
	case c.Model != "":
		f, err = inspectGeneration(c.Path, c.Model)
		err = env.MarkInput(err)
	case c.Path == "mechanisms":
		f, err = inspectMechanisms()
	case c.Path != "":
		var path string
		if path, err = runs.ResolveModel(c.Path); err == nil {
			f, err = inspectPath(path, c.IgnoreField)
		}
		err = env.MarkInput(err)
	default:
		f, err = inspectMachine()
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, f)
	}
	return f.Print(e.Stdout, c.Path != "" && f.Kind != "mechanisms")
}

// inspectMachine describes this machine and the forms that it would choose.
func inspectMachine() (*display.Finding, error) {
	m := bench.DescribeMachine(100 * time.Millisecond)
	f := &display.Finding{Kind: "machine"}
	f.Add("processor", fmt.Sprint(m.CPU))
	f.Add("kernels", m.ISAReason)
	f.AddText("there are", cpu.InstructionSets(), "%s (%s=NAME asks for another)", strings.Join(cpu.InstructionSets(), ", "), cpu.Variable)
	f.Add("threads", m.Threads)
	f.AddText("peak", m.Peak, "%.1f GFLOP/s a core (float32 multiply-adds, measured)", m.Peak/1e9)
	f.Add("go", m.Go)
	table := &display.Table{Columns: []string{"mechanism", "D", "features", "chunk", "linear from N", "causal from N"}}
	for _, name := range mechanism.Names() {
		for _, d := range []int{16, 32, 64, 128} {
			mech, err := mechanism.New(name, mechanism.Options{Width: d})
			if err != nil {
				return nil, err
			}
			if !mech.Traits().Linear {
				continue
			}
			s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: 1, D: d, Dv: d, Form: attention.Linear}
			p := mech.Plan(s)
			s.Form = attention.Auto
			full := plan.SwitchLengths(mech, s).Forward
			s.Causal = true
			table.AddRow(name, d, p.F, p.Chunk, full, plan.SwitchLengths(mech, s).Forward)
		}
	}
	f.Add("forms", table)
	return f, nil
}

// inspectMechanisms describes the catalogue, and which laws its mechanisms were held
// to.
func inspectMechanisms() (*display.Finding, error) {
	f := &display.Finding{Kind: "mechanisms"}
	functions := &display.Table{Columns: []string{"mechanism", "what", "traits"}}
	for _, name := range mechanism.Names() {
		row, err := mechanism.Lookup(name)
		if err != nil {
			return nil, err
		}
		functions.AddRow(row.Name, row.Doc, row.Traits)
	}
	f.Add("mechanisms", functions)
	mixers := &display.Table{Columns: []string{"mixer with its own projections", "what", "traits"}}
	for _, name := range nn.MixerNames() {
		row, _ := nn.LookupMixer(name)
		mixers.AddRow(row.Name, row.Doc, row.Traits)
	}
	f.Add("mixers", mixers)
	laws := conformance.Text
	f.AddLines("laws", strings.Split(strings.TrimSpace(laws), "\n"), "held in float32 and float64 by go test ./mechanism -run TestLaws:\n\n"+laws)
	return f, nil
}

// inspectPath describes a file or a folder by its content. ignored are fields of a published folder's
// config.json that are left out.
func inspectPath(path string, ignored []string) (*display.Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return inspectFolder(path, ignored)
	}
	file, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, 64)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	head = head[:n]
	for _, k := range []struct {
		magic   string
		inspect func(*os.File, int64) (*display.Finding, error)
	}{
		{snapshot.Magic, inspectSnapshot},
		{streamfile.Magic, inspectStream},
		{generate.Magic, inspectText},
		{records.OriginMagic, records.InspectOrigin},
		{"\x93NUMPY", inspectNPY},
		{"PK\x03\x04", inspectNPZ},
	} {
		if strings.HasPrefix(string(head), k.magic) {
			f, err := k.inspect(file, info.Size())
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return f, err
		}
	}
	if len(head) > 8 && head[8] == '{' || filepath.Ext(path) == ".safetensors" {
		return inspectSafetensors(path)
	}
	return nil, fmt.Errorf("%s: begins with %.12q, which is nothing that farfield writes or reads as arrays: a run, checkpoint or model is expected, or .npz, .npy, .safetensors", path, head)
}

// inspectFolder describes a folder by the files in it, as inspectPath does.
func inspectFolder(path string, ignored []string) (*display.Finding, error) {
	is := func(names ...string) bool {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(path, name)); err != nil {
				return false
			}
		}
		return true
	}
	if published.IsFolder(path) {
		return inspectPublished(path, ignored)
	}
	if err := train.CheckForeign(path); err != nil {
		return nil, err
	}
	switch {
	case exchanged.Is(path):
		return inspectExchanged(path)
	case is("checkpoint.json"):
		return inspectModel("checkpoint", path)
	case is(model.WeightsFile, model.ConfigFile):
		return inspectModel("model", path)
	case is("config.json"):
		return inspectRun(path)
	case len(runs.SeedRuns(path)) > 0:
		return inspectSeeds(path)
	}
	return nil, fmt.Errorf("%s: is neither a run nor a checkpoint nor a model: it has no config.json, checkpoint.json or %s%s", path, model.WeightsFile, train.HintInside(path))
}

// inspectRun describes the progress of a run, and its model if there is a checkpoint.
func inspectRun(path string) (*display.Finding, error) {
	c, err := train.RunConfig(path)
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "run"}
	f.Add("task", c.Task)
	h, err := train.ReadHistory(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if h != nil {
		steps := 0
		if n := len(h.Steps); n > 0 {
			steps = h.Steps[n-1].Step
		}
		f.AddText("updates", steps, "%d of %d", steps, c.Steps)
		if err := addScores(f, path, h.Evals); err != nil {
			return nil, err
		}
	}
	checkpoints, err := fs.Glob(os.DirFS(path), "ckpt/*/checkpoint.json")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, x := range checkpoints {
		names = append(names, filepath.Base(filepath.Dir(x)))
	}
	f.AddText("checkpoints", names, "%s", strings.Join(names, ", "))
	if len(names) == 0 {
		return f, nil
	}
	m, err := runs.Open(path, inference.Options{})
	if err != nil {
		return nil, err
	}
	return f, describeModel(f, m.Model())
}

// addScores adds the final score of a run that has ended, and its latest look. It returns an error
// if the result of the run is damaged.
func addScores(f *display.Finding, path string, evals []train.Eval) error {
	add := func(name, when string, update int, v train.Eval) {
		f.AddText(name, v, "%s update %d, %s: loss %s, %s %s", when, update, v.Split, display.FormatValue(v.Metric, v.Loss), v.Metric, display.FormatValue(v.Metric, v.Value))
	}
	for i := len(evals) - 1; i >= 0; i-- {
		v := evals[i]
		if v.Eval == train.EvalLook {
			add("latest look", "at", v.Step, v)
			return nil
		}
		if i < len(evals)-1 { // of a former end
			continue
		}
		result, err := runs.ReadResult(path)
		if err != nil {
			return err
		}
		of := v.Step
		if result != nil && result.Steps == v.Step && result.Best > 0 {
			of = result.Best
		}
		add("final score", "of", of, v)
	}
	return nil
}

// inspectSeeds describes runs that differ in their seeds.
func inspectSeeds(path string) (*display.Finding, error) {
	f := &display.Finding{Kind: "runs with several seeds"}
	table := &display.Table{Columns: []string{"run", "updates", "of"}}
	for _, dir := range runs.SeedRuns(path) {
		c, err := train.RunConfig(dir)
		if err != nil {
			return nil, err
		}
		h, err := train.ReadHistory(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		steps := 0
		if h != nil && len(h.Steps) > 0 {
			steps = h.Steps[len(h.Steps)-1].Step
		}
		table.AddRow(filepath.Base(dir), steps, c.Steps)
	}
	f.Add("runs", table)
	return f, nil
}

// inspectModel describes a model and its attention.
func inspectModel(kind, path string) (*display.Finding, error) {
	m, err := runs.Open(path, inference.Options{})
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: kind}
	return f, describeModel(f, m.Model())
}

// inspectExchanged describes the model of an exchanged run.
func inspectExchanged(path string) (*display.Finding, error) {
	x, err := exchanged.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := inspectModel("exchanged model", path)
	if err != nil {
		return nil, err
	}
	describeExchange(f, &x.Calibration)
	return f, nil
}

func describeModel(f *display.Finding, m *model.Model) error {
	c := m.Config()
	if err := describeConfig(f, m); err != nil {
		return err
	}
	if c.HasSessions() {
		if err := describeDecoding(f, m); err != nil {
			return err
		}
	}
	arrays := &display.Table{Columns: []string{"array", "shape"}}
	for _, x := range m.Params().All() {
		arrays.AddRow(x.Name, x.Shape)
	}
	f.Add("arrays", arrays)
	return nil
}

// describeConfig describes the configuration of a model, its size and its attention.
func describeConfig(f *display.Finding, m *model.Model) error {
	c := m.Config()
	text, err := atomicfile.MarshalJSON(c)
	if err != nil {
		return err
	}
	f.AddText("config", c, "%s", text)
	f.AddText("parameters", m.Params().Size(), "%d in %d arrays", m.Params().Size(), len(m.Params().All()))
	f.AddText("context", c.TrainedContext(), "trained with %d tokens", c.TrainedContext())
	f.AddText("training", c.TrainFLOPs(1), "%s a token at context %d", display.FormatAmount(c.TrainFLOPs(1), "FLOP"), c.Context)
	of, shape, err := model.NewMechanism(c)
	if err != nil {
		return err
	}
	if of != nil {
		describeHeads(f, of, shape, c)
	} else if c.Heads > 0 {
		f.AddText("mixer", c.Mechanism, "%s, which owns its projections", c.Mechanism)
	}
	return nil
}

// describeHeads says how attention runs at the model's context.
func describeHeads(f *display.Finding, of attention.Mechanism, s attention.Shape, c model.Config) {
	p := of.Plan(s)
	linear := ""
	if of.Traits().Linear {
		linear = fmt.Sprintf("; linear from N = %d on", plan.SwitchLengths(of, s).Forward)
	}
	keys := ""
	if s.Hkv != c.Heads {
		keys = ", " + display.Pluralise(s.Hkv, "key head")
	}
	some := ""
	if near := countWindows(c); near > 0 {
		some = fmt.Sprintf("; %d of %d layers have a window (layer_windows)", near, c.Layers)
	}
	for i, x := range c.LayerMechanisms {
		if x.Mechanism != "" {
			some += fmt.Sprintf("; layer %d has %s", i, x.Mechanism)
		}
	}
	f.AddText("attention", fmt.Sprint(p.Form), "%d heads of width %d%s, %s form at this context%s%s", c.Heads, s.D, keys, p.Form, linear, some)
}

// describeDecoding describes the states of a decoder.
func describeDecoding(f *display.Finding, m *model.Model) error {
	session, err := m.NewSession(1)
	if err != nil {
		return err
	}
	isFixed, err := m.Config().HasFixedState()
	if err != nil {
		return err
	}
	grows := "whatever the length"
	if !isFixed {
		grows = "before the first token, and growing"
	}
	f.AddText("decoding", session.Bytes(), "%s of state, %s", display.FormatBytes(float64(session.Bytes())), grows)
	return nil
}

// inspectGeneration says how far a text in progress is, which its model checks.
func inspectGeneration(path, dir string) (*display.Finding, error) {
	m, err := runs.Open(dir, inference.Options{})
	if err != nil {
		return nil, err
	}
	g, err := generate.LoadGenerator(path, m.Model())
	if err != nil {
		return nil, err
	}
	sampling, err := atomicfile.MarshalJSON(g.Sampling())
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "text in progress"}
	f.Add("tokens", g.Tokens())
	f.AddText("state", g.Bytes(), "%s", display.FormatBytes(float64(g.Bytes())))
	f.AddText("sampling", g.Sampling(), "%s", sampling)
	return f, nil
}

// inspectText describes a saved text without its model.
func inspectText(file *os.File, size int64) (*display.Finding, error) {
	h, err := generate.ReadHeader(file, size)
	if err != nil {
		return nil, err
	}
	sampling, err := atomicfile.MarshalJSON(h.Sampling)
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "text in progress"}
	f.Add("tokens drawn", h.TokensDrawn)
	f.AddText("sampling", h.Sampling, "%s", sampling)
	f.Add("weights sha256", h.Weights)
	f.Add("precision", h.Precision)
	f.AddText("bytes", size, "%d (farfield inspect --model DIR tells more)", size)
	return f, nil
}

// inspectSnapshot says whose state a snapshot is.
func inspectSnapshot(file *os.File, size int64) (*display.Finding, error) {
	h, err := states.ReadHeader(file, size)
	f := &display.Finding{Kind: "state"}
	addState(f, h)
	return f, err
}

// addState adds the description of a state from its snapshot header.
func addState(f *display.Finding, h states.Header) {
	f.Add("mechanism", h.Mechanism)
	if h.Setting != "" {
		f.Add("setting", h.Setting)
	}
	f.AddText("content", h.Kind, "%s, float%d", h.Kind, 8*h.Element)
	f.AddText("shape", map[string]int{"b": h.B, "h": h.H, "hkv": h.Hkv, "d": h.D, "dv": h.Dv, "chunk": h.Chunk},
		"B %d, H %d, Hkv %d, D %d, Dv %d, chunk %d", h.B, h.H, h.Hkv, h.D, h.Dv, h.Chunk)
	f.Add("tokens", h.Tokens)
	f.Add("bytes", h.Bytes)
	f.Add("parameters crc32c", h.Parameters)
}

// inspectStream describes the run and the progress of a stream's checkpoint.
func inspectStream(file *os.File, size int64) (*display.Finding, error) {
	h, err := streamfile.ReadHeader(file, size)
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "checkpoint of a stream"}
	f.AddText("pass", h.Pass, "%d, token %d", h.Pass, h.Tokens)
	f.Add("token", h.Tokens)
	f.Add("complete", h.IsComplete)
	addState(f, h.State)
	bound := &display.Table{Columns: []string{"run of", "value"}}
	for _, x := range h.Bound {
		bound.AddRow(x.Name, x.Value)
	}
	f.Add("bound", bound)
	return f, nil
}

func describeArrays(table *display.Table) *display.Finding {
	f := &display.Finding{Kind: "arrays"}
	f.Add("arrays", table)
	return f
}

func inspectSafetensors(path string) (*display.Finding, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table := &display.Table{Columns: []string{"array", "type", "shape"}}
	for _, x := range file.Tensors() {
		table.AddRow(x.Name, x.DType, x.Shape)
	}
	f := describeArrays(table)
	if vectors.IsIndex(file) {
		f.Kind = "index of search"
	}
	return f, nil
}

func inspectNPZ(file *os.File, size int64) (*display.Finding, error) {
	z, err := array.NewNPZ(file, size)
	if err != nil {
		return nil, err
	}
	table := &display.Table{Columns: []string{"array", "type", "shape"}}
	for _, name := range z.Names() {
		t, shape, err := z.ReadHeader(name)
		if err != nil {
			return nil, err
		}
		table.AddRow(name, t.String(), shape)
	}
	return describeArrays(table), nil
}

func inspectNPY(file *os.File, size int64) (*display.Finding, error) {
	a, err := array.OpenStoredNPY("array", file, size)
	if err != nil {
		return nil, err
	}
	table := &display.Table{Columns: []string{"array", "type", "shape"}}
	table.AddRow(filepath.Base(file.Name()), a.DType.String(), a.Shape)
	return describeArrays(table), nil
}
