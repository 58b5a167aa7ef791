package attend

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/stream"
)

// streamed are the flags of inputs that need not fit in memory.
type streamed struct {
	Stream          bool          `help:"Read, compute and write in windows, in constant memory."`
	Synthetic       string        `placeholder:"N,D,H" help:"Replace IN by N random tokens of H heads of width D."`
	RawShape        string        `name:"raw" placeholder:"D,H[,Hkv[,Dv]]" help:"IN is numbers without a header: q, k, v of each token."`
	Model           string        `required:"" xor:"mechanism" placeholder:"DIR" help:"IN is a text; stream a layer of the model in DIR."`
	Layer           *int          `placeholder:"L" help:"With --model: attention layer, from 0 (0)."`
	Memory          string        `placeholder:"BYTES" help:"Memory of a stream, as 64MiB or 2GiB (256MiB)."`
	Checkpoint      string        `placeholder:"FILE" help:"File of the stream's checkpoint (OUT.checkpoint)."`
	CheckpointEvery time.Duration `placeholder:"TIME" help:"Time between checkpoints, as 5m (30s)."`
	RowsEvery       int64         `placeholder:"K" help:"Write only rows 0, K, 2K, ... of o; the CRC-32C is of all."`
	Check           int           `placeholder:"K" help:"Compare K random rows of OUT with sums over all keys."`
	Restart         bool          `name:"fresh" help:"Restart a stream, ignoring its checkpoint."`
	env.Ranked
}

// refuse reports flags that mean nothing in memory.
func (s *streamed) refuse() error {
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"--raw", s.RawShape != ""}, {"--layer", s.Layer != nil}, {"--memory", s.Memory != ""}, {"--checkpoint", s.Checkpoint != ""}, {"--checkpoint-every", s.CheckpointEvery != 0},
		{"--rows-every", s.RowsEvery != 0}, {"--check", s.Check != 0}, {"--fresh", s.Restart},
	} {
		if x.given {
			return env.InputErrorf("%s: needs --stream", x.name)
		}
	}
	return nil
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "A mechanism can be computed in several ways (--form); by default the fastest is chosen. The results of all differ only by rounding.\n\n" +
		"Arrays q, k and v have the shape (N,D), (H,N,D) or (B,H,N,D): N tokens of width D, H heads, B sequences. k and v may have another number of tokens M and fewer heads, v another width Dv. " +
		"The file may also have keymask (B,M) or (M), key_lengths (B), attn_keep (N,M), cu_q and cu_k, log_g (M), (H,M) or (B,H,M) with the H of k, the gradient do (or go) of the output, and parameters of the mechanism. Standard error names arrays that are not used.\n\n" +
		"--dropout 1d drops whole tokens of q and k, standard drops channels, quadratic drops products of two channels. " +
		"Which of them are kept is read from IN if it has the masks, and otherwise drawn from --seed: mask_qtok (B,H,N) and mask_ktok (B,H,M), mask_q1 and mask_k1 of the shapes of q and k, or mask_q2 (B,H,N,D,D) and mask_k2.\n\n" +
		"--stream reads inputs that may be larger than memory, window by window: a .safetensors file, a folder with q.npy, k.npy and v.npy, or with --raw a file or standard input (-). " +
		"OUT is .npy, .safetensors, .raw or - (numbers, token by token); without OUT only the CRC-32C of the output is printed. " +
		"If a run is interrupted, the same command continues it; a run that is killed loses at most the time --checkpoint-every. " +
		"Without OUT there is a checkpoint only if --checkpoint names its file. Under mpirun every process but the first adds its number to the name. " +
		"--raw H,D reads the numbers of one sequence token by token, each a float32: q (H,D), k (Hkv,D), v (Hkv,Dv), without keymask and log_g.\n\n" +
		"--model streams a text (- is standard input) through the layers of a decoder up to --layer, in constant memory. DIR is a run, of which the latest checkpoint is read, or a checkpoint. Mechanism and parameters are those of the layer.\n\n" +
		"--check computes the given number of rows again from all keys that they see, with the weights of the direct form, which takes its share of quadratic time; it needs memory for 4096 keys even if --memory is less. --diagnose takes time that grows with N times M." + flags.JoinExamples(
		"farfield attend --mechanism fastmax --causal --grad qkv.npz out.npz",
		"farfield attend --mechanism softmax --json qkv.npz out.safetensors",
		"farfield attend --mechanism fastmax --causal --synthetic 1e5,32,2 --check 3 o.npy",
		"farfield attend --mechanism fastmax --causal --stream qkv.safetensors o.npy",
		"farfield attend --mechanism linear --stream --memory 64MiB folder o.npy",
		"producer | farfield attend --mechanism fastmax --causal --stream --raw 64,8 - o.raw",
		"farfield attend --model run/001 --stream --layer 1 notes.txt o.npy",
		"farfield attend --mechanism fastmax --synthetic 1000000000,32,1 --seed 7 --rows-every 1000000 o.npy",
		"mpirun -n 4 farfield attend --mechanism fastmax --causal --stream qkv.safetensors o.npy",
	)
}

// programBytes is the memory of the program beyond the plan of a stream.
const programBytes = 32 << 20

// StreamReport is the JSON result of a stream.
type StreamReport struct {
	Mechanism   string  `json:"mechanism"`
	Chunk       int     `json:"chunk,omitempty"`
	Window      int     `json:"window"`
	ISA         string  `json:"isa"`
	Threads     int     `json:"threads"`
	N           int64   `json:"n"`
	M           int64   `json:"m"`
	Tokens      int64   `json:"tokens"` // of all passes
	Resumed     int64   `json:"resumed_tokens"`
	Seconds     float64 `json:"seconds"`
	Filling     float64 `json:"filling_seconds"` // reading or making tokens
	Computing   float64 `json:"computing_seconds"`
	FLOPs       float64 `json:"flops,omitempty"`       // 0: not counted
	Peak        float64 `json:"peak_gflops,omitempty"` // of all threads, before the run; of --synthetic
	StateBytes  int64   `json:"state_bytes"`
	Planned     int64   `json:"planned_bytes"`
	Memory      int64   `json:"memory_bytes"`
	PeakBytes   int64   `json:"peak_bytes"` // of the process
	Checkpoints int     `json:"checkpoints"`
	NonFinite   int64   `json:"nonfinite_rows"` // of this run
	Digest      string  `json:"crc32c"`
	Ranks       int     `json:"ranks,omitempty"`      // that the tokens were divided among
	Sent        int64   `json:"sent_bytes,omitempty"` // by one of them to the others, whatever the tokens are

	Check *rowCheck `json:"check,omitempty"`
}

// stream computes attention window by window.
func (c *Command) stream(e *env.Env) error {
	in, out := c.In, c.Out
	if c.Synthetic != "" {
		if out != "" || c.RawShape != "" {
			return env.InputErrorf("--synthetic: takes the place of <in>; OUT alone may be given")
		}
		in, out = "", c.In
	} else if in == "" {
		return env.InputErrorf(`expected "<in> [<out>]"`)
	}
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"--form", c.Form != "auto"}, {"--dropout", c.Dropout != ""}, {"--rate", c.Rate != nil}, {"--grad", c.Grad}, {"--diagnose", c.Diagnose},
		{"--json", c.JSON && out == "-"},
	} {
		if x.given {
			return env.InputErrorf("%s: not with --stream", x.name)
		}
	}
	noCheckpoint := c.Checkpoint == "" && (out == "" || out == "-")
	for _, x := range []struct {
		name, needs string
		given       bool
	}{
		{"--fresh", "a file OUT or --checkpoint", c.Restart && noCheckpoint},
		{"--checkpoint-every", "a file OUT or --checkpoint", c.CheckpointEvery != 0 && noCheckpoint},
		{"--rows-every", "OUT", c.RowsEvery != 0 && out == ""},
	} {
		if x.given {
			return env.InputErrorf("%s: needs %s", x.name, x.needs)
		}
	}
	if c.CheckpointEvery < 0 {
		return env.InputErrorf("--checkpoint-every: is %v, needs 0 or more", c.CheckpointEvery)
	}
	if c.RowsEvery < 0 {
		return env.InputErrorf("--rows-every: is %d, needs 0 or more", c.RowsEvery)
	}
	if c.Layer != nil && c.Model == "" {
		return env.InputErrorf("--layer: needs --model")
	}
	memory := int64(stream.DefaultMemory)
	if c.Memory != "" {
		var err error
		if memory, err = flags.ParseBytes(c.Memory); err != nil {
			return env.InputErrorf("--memory: %w", err)
		}
	}
	if _, err := c.JoinRanks(e); err != nil {
		return err
	}
	return e.RunWithRanks("the same command continues", func() error {
		return c.runStream(e, in, out, memory)
	})
}

// runStream computes the stream in to out.
func (c *Command) runStream(e *env.Env, in, out string, memory int64) error {
	src, rank, given, err := openStream(c, e, in)
	if err != nil {
		return env.MarkInput(err)
	}
	defer given.Close()
	if c.Check < 0 || c.Check > 0 && (out == "" || out == "-") {
		return env.InputErrorf("--check: %d rows; it needs a file OUT to read them from", c.Check)
	}
	to := stream.NewDigestOutput()
	checkpoint := c.Checkpoint
	switch {
	case out == "-":
		to = stream.NewWriterOutput(e.Stdout)
	case out != "":
		if to, err = stream.NewFileOutput(out, rank); err != nil {
			return env.MarkInput(err)
		}
		if checkpoint == "" {
			checkpoint = out + stream.CheckpointSuffix
		}
	}
	to.RowStep = c.RowsEvery
	s := src.Shape()
	p, err := streamMechanism(c, src, given, in)
	if err != nil {
		return env.MarkInput(err)
	}
	unknown := p.UnknownNames(given.Names())
	if len(unknown) > 0 {
		fmt.Fprintf(e.Notes(), "farfield: not used: %s\n", strings.Join(display.EscapeAll(unknown), ", "))
	}
	var written []string
	if checkpoint != "" {
		written = append(written, checkpoint, checkpoint+lock.Suffix)
	}
	if out != "" && out != "-" {
		written = append(written, out, out+stream.PartialSuffix, out+lock.Suffix)
	}
	read := []string{in}
	if c.Model != "" {
		read = append(read, runs.ModelFiles(c.Model)...)
	}
	for _, name := range given.Names() {
		if !slices.Contains(unknown, name) {
			read = append(read, filepath.Join(in, name+".npy")) // of a folder
		}
	}
	for _, path := range written {
		if err := env.CheckOutput(path, read...); err != nil {
			return env.MarkInput(err)
		}
	}
	var rows []int64
	if c.Check > 0 {
		// Refuses a stream that it cannot check.
		if _, err = stream.ComputeRows(e.Context, p.Mechanism, src, c.Causal, nil, memory, nil); err == nil {
			rows, err = drawRows(c, s, memory)
		}
		if err != nil {
			return env.InputErrorf("--check: %w", err)
		}
	}
	// Garbage is collected before the process has much more than was asked for.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory + programBytes))
	peak := c.peak()
	bar := progress.NewStream(e.SilenceRanks())
	r, err := stream.Run(e.Context, p.Mechanism, src, to, stream.Options{
		Causal: c.Causal, Memory: memory, Checkpoint: checkpoint, CheckpointInterval: c.CheckpointEvery, Restart: c.Restart, AllowNonfinite: c.AllowNonfinite, Progress: bar.Show, Ranks: e.Ranks,
	})
	bar.Clear()
	switch {
	case err == nil:
	case e.Context.Err() != nil && errors.Is(err, e.Context.Err()):
		if checkpoint == "" {
			return err
		}
		return env.Interruption{Err: err, Text: fmt.Sprintf("stopped after token %d%s; the same command continues", r.Tokens, bar.Share())}
	case errors.Is(err, fault.ErrInput):
		return env.MarkInput(err)
	default:
		return err
	}
	if r.NonFinite > 0 {
		fmt.Fprintf(e.Notes(), "farfield: o: %d rows are not finite\n", r.NonFinite)
	}
	if !e.IsFirst() {
		return nil
	}
	report := &StreamReport{
		Mechanism: c.Mechanism, Chunk: r.Chunk, Window: r.Window, ISA: kernel.Active[float32]().Name, Threads: par.Threads(),
		N: r.Shape.N, M: r.Shape.M, Tokens: r.Tokens, Resumed: r.Resumed, Seconds: r.Seconds, Filling: r.Filling, Computing: r.Computing, FLOPs: r.FLOPs, Peak: peak,
		StateBytes: r.StateBytes, Planned: r.Planned, Memory: memory, Checkpoints: r.Checkpoints, NonFinite: r.NonFinite,
		Digest: fmt.Sprintf("%08x", r.Digest), Sent: r.Sent,
	}
	if e.Ranks != nil {
		report.Ranks = e.Ranks.Size()
	}
	if c.Check > 0 {
		if report.Check, err = checkRows(c, e, src, to, r, p.Mechanism, rows, memory); err != nil {
			return err
		}
	}
	report.PeakBytes = machine.PeakMemory()
	w := e.Notes()
	if out == "" {
		w = e.Stdout
	}
	if !c.JSON {
		report.print(w)
	} else if err := display.PrintJSON(e.Stdout, report); err != nil {
		return err
	}
	return report.Check.verdict()
}

// streamMechanism returns the mechanism of a source that has one, and makes it of
// others.
func streamMechanism(c *Command, src stream.Source, given array.Source, in string) (*problem.Problem, error) {
	if of, ok := given.(closing); ok && of.mechanism != nil {
		c.Mechanism = of.mechanism.Traits().Name
		return &problem.Problem{Mechanism: of.mechanism}, nil
	}
	return newMechanism(c, src.Shape(), given, in)
}

// newMechanism makes the mechanism of a stream, with the parameters in given.
func newMechanism(c *Command, s stream.Shape, given array.Source, in string) (*problem.Problem, error) {
	return problem.NewStreamProblem(c.request(in), s.H, s.D, int(max(s.M, 0)), given)
}

// peak measures the peak of the machine for synthetic tokens, which serve to measure.
func (s *streamed) peak() float64 {
	if s.Synthetic == "" {
		return 0
	}
	return bench.Peak(kernel.Active[float32]().Name, par.Threads(), peakTime) / 1e9
}

const peakTime = 100 * time.Millisecond

// print writes the report in words.
func (r *StreamReport) print(w io.Writer) {
	before := ""
	if r.Resumed > 0 {
		before = fmt.Sprintf(", %d of them before", r.Resumed)
	}
	speed := ""
	if rate := r.FLOPs / max(r.Computing, 1e-9) / 1e9; rate > 0 {
		if speed = fmt.Sprintf(" at %.1f GFLOP/s", rate); r.Peak > 0 {
			speed += fmt.Sprintf(", %s of the %.0f GFLOP/s that the machine can do", display.FormatPercent(rate/r.Peak), r.Peak)
		}
	}
	fmt.Fprintf(w, "%d tokens%s in %.1f s: %.1f s reading or making them, %.1f s computing%s\n", r.Tokens, before, r.Seconds, r.Filling, r.Computing, speed)
	fmt.Fprintf(w, "state %s, windows of %d tokens, %s planned of %s; the process had %s\n", flags.FormatMiB(r.StateBytes), r.Window, flags.FormatMiB(r.Planned), flags.FormatMiB(r.Memory), flags.FormatMiB(r.PeakBytes))
	if r.Ranks > 0 {
		fmt.Fprintf(w, "%d ranks; rank 0, of which this is, sent %d bytes of its state to the others, as many for any number of tokens\n", r.Ranks, r.Sent)
	}
	fmt.Fprintf(w, "o [%d rows a head], CRC-32C %s\n", r.N, r.Digest)
	r.Check.print(w)
}

// openStream opens the input of a stream. The caller closes given, which has the
// parameters. Outputs have the number of dimensions of q.
func openStream(c *Command, e *env.Env, in string) (src stream.Source, rank int, given array.Source, err error) {
	given = new(array.Folder) // of nothing
	switch {
	case c.Model != "":
		src, mechanism, text, err := openLayer(e, &c.streamed, in)
		if err != nil {
			return nil, 0, nil, err
		}
		return src, 3, closing{given, text, mechanism}, nil
	case c.Synthetic != "":
		x, err := numbers("--synthetic", c.Synthetic, 3, 3)
		if err != nil {
			return nil, 0, nil, err
		}
		d, h, err := toInts("--synthetic", x[1], x[2])
		if err != nil {
			return nil, 0, nil, err
		}
		src, err = stream.NewSyntheticSource(x[0], d, h, c.Seed)
		return src, 3, given, err
	case c.RawShape != "":
		x, err := numbers("--raw", c.RawShape, 2, 4)
		if err != nil {
			return nil, 0, nil, err
		}
		if len(x) < 3 {
			x = append(x, x[1])
		}
		if len(x) < 4 {
			x = append(x, x[0])
		}
		s := stream.Shape{B: 1}
		if s.D, s.H, err = toInts("--raw", x[0], x[1]); err != nil {
			return nil, 0, nil, err
		}
		if s.Hkv, s.Dv, err = toInts("--raw", x[2], x[3]); err != nil {
			return nil, 0, nil, err
		}
		from, err := texts.OpenBytes(e, in)
		if err != nil {
			return nil, 0, nil, err
		}
		if f, ok := from.(*os.File); ok {
			src, err = stream.NewRawFileSource(f, s)
		} else {
			src, err = stream.NewPipeSource(from, s)
		}
		if err != nil {
			from.Close()
			return nil, 0, nil, err
		}
		return src, 3, closing{given, from, nil}, nil
	case in == "-":
		return nil, 0, nil, errors.New("--raw: missing; standard input needs the widths and heads of its numbers")
	}
	var files array.Source
	if info, err := os.Stat(in); err != nil {
		return nil, 0, nil, err
	} else if info.IsDir() {
		files, err = array.OpenFolder(in)
		if err != nil {
			return nil, 0, nil, err
		}
	} else {
		if suffix := filepath.Ext(in); suffix != ".safetensors" {
			return nil, 0, nil, fmt.Errorf("%s: the suffix is %q; a stream needs .safetensors, a folder of .npy, or --raw", in, suffix)
		}
		files, err = safetensors.Open(in)
		if err != nil {
			return nil, 0, nil, err
		}
	}
	src, rank, tokens, err := stream.OpenArraySource(in)
	if err != nil {
		files.Close()
		return nil, 0, nil, err
	}
	return src, rank, closing{files, tokens, nil}, nil
}

// closing is a source with another file to close.
type closing struct {
	array.Source
	file      io.Closer           // of the tokens
	mechanism attention.Mechanism // of the source; nil: the command names it
}

func (c closing) Close() error { return errors.Join(c.Source.Close(), c.file.Close()) }

// numbers reads a list of lo to hi whole numbers.
func numbers(flag, text string, lo, hi int) ([]int64, error) {
	parts := strings.Split(text, ",")
	if len(parts) < lo || len(parts) > hi {
		return nil, fmt.Errorf("%s: %q has %d numbers, needs %d to %d", flag, text, len(parts), lo, hi)
	}
	list := make([]int64, len(parts))
	for i, p := range parts {
		n, ok := flags.ParseWhole(p)
		if !ok || n < 0 {
			return nil, fmt.Errorf("%s: %q is not a whole number from 0 on", flag, p)
		}
		list[i] = n
	}
	return list, nil
}

// toInts returns widths or numbers of heads.
func toInts(flag string, a, b int64) (int, int, error) {
	if a > math.MaxInt32 || b > math.MaxInt32 {
		return 0, 0, fmt.Errorf("%s: %d is too large", flag, max(a, b))
	}
	return int(a), int(b), nil
}
