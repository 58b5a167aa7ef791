package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cpu"
)

// process is a peer that runs: it takes a case a line and answers with a line.
type process struct {
	impl     string // with its version, as it says itself
	settings string // that it was started with
	in       io.WriteCloser
	out      *bufio.Reader
	wait     func() error
}

// question is what a process is asked: a line without figures, and how many
// milliseconds to spend on it, one call at least.
type question struct {
	bench.Line
	Budget float64 `json:"budget"`
}

// answer is what it says: the line with figures, or why there are none.
type answer struct {
	bench.Line
	Error string `json:"error"`
}

// command is how a process is started.
type command struct {
	args     []string
	env      []string // added to the environment of this process
	settings string   // what env and args mean, beside what the process says itself
}

// start starts a process and waits for its first line, its name and version.
func (c command) start(ctx context.Context) (*process, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{in: in, out: bufio.NewReader(out), wait: cmd.Wait}
	var hello struct{ Impl, Settings string }
	if err := p.read(&hello); err != nil {
		p.close()
		if text := strings.TrimSpace(complaint.String()); text != "" {
			return nil, fmt.Errorf("%s", text[strings.LastIndexByte(text, '\n')+1:])
		}
		return nil, err
	}
	p.impl, p.settings = hello.Impl, strings.TrimSpace(hello.Settings+" "+c.settings)
	return p, nil
}

// read reads a line of JSON.
func (p *process) read(to any) error {
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("it ended: %w", err)
	}
	return json.Unmarshal(text, to)
}

// measure fills in the figures of a line.
func (p *process) measure(l bench.Line, budget time.Duration) (bench.Line, error) {
	text, err := json.Marshal(question{l, 1e3 * budget.Seconds()})
	if err != nil {
		return l, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return l, fmt.Errorf("it ended: %w", err)
	}
	var a answer
	if err := p.read(&a); err != nil {
		return l, err
	}
	if a.Error != "" {
		return l, fmt.Errorf("%s", a.Error)
	}
	return a.Line, nil
}

// ask asks for the milliseconds of a case.
func (p *process) ask(question any) (ms float64, err error) {
	text, err := json.Marshal(question)
	if err != nil {
		return 0, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return 0, fmt.Errorf("%s ended: %w", p.impl, err)
	}
	var y struct {
		Ms    float64
		Error string
	}
	if err := p.read(&y); err != nil {
		return 0, err
	}
	if y.Error != "" {
		return 0, fmt.Errorf("%s: %s", p.impl, y.Error)
	}
	return y.Ms, nil
}

func (p *process) close() {
	p.in.Close()
	p.wait()
}

// peer is an implementation beside ours: one program with several settings. Each kind of
// case takes the best setting.
type peer struct {
	processes []*process
	best      map[kind]*process
}

// kind is a kind of case, which has settings of its own.
type kind struct {
	mechanism, form, direction string
	causal                     bool
	threads                    int
}

func kindOf(l bench.Line) kind {
	return kind{l.Mechanism, l.Form, l.Direction, l.Causal, l.Threads}
}

func (k kind) String() string {
	words := []string{k.mechanism}
	if k.form != "" {
		words = append(words, k.form)
	}
	if k.causal {
		words = append(words, "causal")
	}
	words = append(words, k.direction)
	if k.threads > 1 {
		words = append(words, fmt.Sprint(k.threads, " threads"))
	}
	return strings.Join(words, " ")
}

// startAll starts a process for each command. It fails if none of them starts.
func startAll(ctx context.Context, commands []command) (*peer, error) {
	p := &peer{best: map[kind]*process{}}
	processes, errs := make([]*process, len(commands)), make([]error, len(commands))
	done := make(chan bool)
	for i, c := range commands {
		go func() {
			processes[i], errs[i] = c.start(ctx)
			done <- true
		}()
	}
	for range commands {
		<-done
	}
	for _, x := range processes {
		if x != nil {
			p.processes = append(p.processes, x)
		}
	}
	if len(p.processes) == 0 {
		return nil, errs[0]
	}
	return p, nil
}

// tryCase picks, of the cases of a kind, the one that settings are tried with: one
// near 1024 tokens of width 64.
func tryCase(list []bench.Line) bench.Line {
	off := func(l bench.Line) float64 {
		return math.Abs(math.Log2(float64(l.N)/1024)) + math.Abs(math.Log2(float64(l.D)/64))
	}
	l := slices.MinFunc(list, func(a, b bench.Line) int {
		if off(a) < off(b) {
			return -1
		}
		return 1
	})
	if l.Direction == "update" {
		l.N, l.M = 256, 256 // a step of the whole context takes seconds
	}
	return l
}

const (
	trialRounds = 3
	// Settings have to be faster by this to be preferred to those before them.
	matters = 0.97
)

// choose finds out which settings are the best for each kind of the cases, by
// turns, and ends the processes that are for none.
func (p *peer) choose(ctx context.Context, lines []bench.Line, budget time.Duration) error {
	kinds := map[kind][]bench.Line{}
	for _, l := range lines {
		kinds[kindOf(l)] = append(kinds[kindOf(l)], l)
	}
	for k, list := range kinds {
		p.best[k] = p.processes[0]
		if len(p.processes) == 1 {
			continue
		}
		least := math.Inf(1)
		l := tryCase(list)
		times := make([][]float64, len(p.processes))
		for range trialRounds {
			for i, x := range p.processes {
				if err := ctx.Err(); err != nil {
					return err
				}
				if got, err := x.measure(l, budget); err == nil {
					times[i] = append(times[i], got.Ms)
				}
			}
		}
		for i, x := range p.processes {
			if ms := bench.Median(times[i]); len(times[i]) == trialRounds && ms < matters*least {
				least, p.best[k] = ms, x
			}
		}
	}
	p.processes = slices.DeleteFunc(p.processes, func(x *process) bool {
		for _, best := range p.best {
			if best == x {
				return false
			}
		}
		x.close()
		return true
	})
	return nil
}

// settings says which settings are used for what.
func (p *peer) settings() []string {
	var list []string
	for _, x := range p.processes {
		var kinds []string
		for k, best := range p.best {
			if best == x {
				kinds = append(kinds, k.String())
			}
		}
		slices.Sort(kinds)
		list = append(list, fmt.Sprintf("%s with %s: %s", x.impl, x.settings, strings.Join(kinds, ", ")))
	}
	return list
}

func (p *peer) close() {
	for _, x := range p.processes {
		x.close()
	}
}

// coreTypes are the kernels of OpenBLAS that this machine can run. Left alone,
// it takes poor ones for processors that are newer than it is.
func coreTypes() []string {
	switch {
	case runtime.GOARCH != "amd64":
		return []string{""}
	case slices.Contains(cpu.InstructionSets(), "avx512"):
		return []string{"SkylakeX", "Zen", "Haswell"}
	case slices.Contains(cpu.InstructionSets(), "avx2"):
		return []string{"Zen", "Haswell"}
	}
	return []string{""}
}

// torchCommands returns the commands of PyTorch below folder, or of the one that
// the system has, with each setting that may be the best: the kernels of
// OpenBLAS, and whether its products use PyTorch's threads (OpenMP) or none of
// their own.
func torchCommands(folder, scripts string) []command {
	// Freed memory is kept: returned to the system, every large tensor would be
	// cleared anew.
	base := []string{"GLIBC_TUNABLES=glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184"}
	script := filepath.Join(scripts, "torch_cases.py")
	tree := filepath.Join(folder, "trixie")
	loaders, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu/ld-linux*.so.*"))
	var list []command
	for _, core := range coreTypes() {
		env := base
		if core != "" {
			env = append(slices.Clone(base), "OPENBLAS_CORETYPE="+core)
		}
		if len(loaders) == 0 {
			list = append(list, command{args: []string{"python3", script}, env: append(slices.Clone(env), "OPENBLAS_NUM_THREADS=1")})
			continue
		}
		env = append(slices.Clone(env), "PYTHONHOME="+filepath.Join(tree, "usr"))
		libraries := filepath.Dir(loaders[0])
		for _, blas := range []string{"openmp", "pthread"} {
			own := env
			if blas == "pthread" {
				own = append(slices.Clone(env), "OPENBLAS_NUM_THREADS=1")
			}
			path := strings.Join([]string{filepath.Join(libraries, "openblas-"+blas), libraries, filepath.Join(tree, "usr/lib")}, ":")
			list = append(list, command{
				args: []string{loaders[0], "--library-path", path, filepath.Join(tree, "usr/bin/python3"), script},
				env:  own, settings: "libopenblas0-" + blas,
			})
		}
	}
	return list
}

// onnxCommands returns the command of ONNX Runtime below folder.
func onnxCommands(folder, scripts string) []command {
	return []command{{
		args: []string{"node", filepath.Join(scripts, "onnxruntime_cases.js")},
		env:  []string{"NODE_PATH=" + filepath.Join(folder, "node_modules")},
	}}
}

// measure fills in the figures of a line, with the settings that are best for
// its kind.
func (p *peer) measure(l bench.Line, budget time.Duration) (bench.Line, error) {
	return p.best[kindOf(l)].measure(l, budget)
}
