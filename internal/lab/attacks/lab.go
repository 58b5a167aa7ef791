//go:build linux

package attacks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/farfield-ml/farfield/internal/lock"
)

// unprivilegedUser has no permission that it is not given.
const unprivilegedUser = 65534

// A lab is the program under attack and what the tries share.
type lab struct {
	work    string
	seed    uint64
	program string // path
	digest  string // the beginning of its SHA-256 and this program's
	commit  string
	files   string // fixtures, which no try may change
	sums    map[string]string
	server  *server
	owner   *lock.Lock

	mu         sync.Mutex
	references map[string]*reference
	bases      map[string]int64
}

// openLab builds the program and makes the fixtures, unless they are there.
func openLab(ctx context.Context, work string, seed uint64) (*lab, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"records", "tries"} {
		if err := os.MkdirAll(filepath.Join(work, sub), 0o755); err != nil {
			return nil, err
		}
	}
	l := &lab{work: work, seed: seed, references: map[string]*reference{}, bases: map[string]int64{}}
	if l.owner, err = lock.LockFolder(work); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.closeLab()
		}
	}()
	if err = l.removeTries(); err != nil {
		return nil, err
	}
	l.program = filepath.Join(work, "farfield")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", l.program, "./cmd/farfield")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	// Results are bound to the program and to this one.
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	both := sha256.New()
	for _, path := range []string{l.program, self} {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(both, f)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	l.digest = fmt.Sprintf("%x", both.Sum(nil))[:12]
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		l.commit = strings.TrimSpace(string(out))
	}
	l.files = filepath.Join(work, "fixtures-"+l.digest)
	if err = l.makeFixtures(ctx); err != nil {
		return nil, err
	}
	if l.sums, err = digestTree(l.files, nil); err != nil {
		return nil, err
	}
	l.server, err = startServer(filepath.Join(work, "ca.pem"))
	return l, err
}

// removeTries removes the tries and mounts that a killed campaign has left.
func (l *lab) removeTries() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	tries := filepath.Join(l.work, "tries")
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 4 && strings.HasPrefix(words[4], tries+"/") {
			_ = syscall.Unmount(words[4], syscall.MNT_DETACH)
		}
	}
	entries, err := os.ReadDir(tries)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(tries, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) closeLab() {
	if l.server != nil {
		l.server.Close()
	}
	l.owner.Release()
}

// damaged names a fixture that is not as it was; "" if there is none.
func (l *lab) damaged() string {
	now, err := digestTree(l.files, nil)
	if err != nil {
		return err.Error()
	}
	return diffTrees(l.sums, now)
}

// A trial is a try in the making.
type trial struct {
	*lab
	ctx  context.Context
	dir  string // has box alone: cwd, home, out, and what the attack puts there
	rand *rand.Rand

	// Peaks of memory in bytes, on the intact file and on a damaged one.
	peakIntact, peakDamaged int64
}

// newTrial makes the folder of a try.
func (l *lab) newTrial(ctx context.Context, dir string, r *rand.Rand) (*trial, error) {
	t := &trial{lab: l, ctx: ctx, dir: dir, rand: r}
	if err := os.RemoveAll(dir); err != nil {
		return t, err
	}
	for _, sub := range []string{"cwd", "home", "out"} {
		if err := os.MkdirAll(t.box(sub), 0o755); err != nil {
			return t, err
		}
	}
	return t, nil
}

// box returns a path in the box.
func (t *trial) box(name ...string) string {
	return filepath.Join(append([]string{t.dir, "box"}, name...)...)
}

// A child is a process of the program.
type child struct {
	args      []string
	dir       string // by default box/cwd
	stdin     io.Reader
	stdout    *os.File // by default a buffer, whose beginning the outcome keeps
	env       []string
	user      int           // 0: the campaign's
	files     int           // most descriptors; 0: the campaign's
	killAfter time.Duration // a kill comes then; 0: none
	limit     time.Duration // a process that takes longer hangs; 0: hangLimit
}

// An outcome is how a child has ended.
type outcome struct {
	status         int // -1 after a signal
	signal         syscall.Signal
	hung, killed   bool
	stdout, stderr []byte // their beginnings
	peak           int64  // resident bytes
	cpu, took      time.Duration
}

// Limits of a child: a process is taken to hang after hangLimit, and, tried again on a
// machine that may be busy, uses this much processor time or takes slowLimit.
const (
	hangLimit = 10 * time.Second
	slowLimit = 60 * time.Second
)

// head keeps the first written bytes.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	const most = 1 << 16
	h.Buffer.Write(p[:min(len(p), most-min(most, h.Len()))])
	return len(p), nil
}

// newCommand prepares a child.
func (t *trial) newCommand(c *child) *exec.Cmd {
	args := append([]string{t.program, "--threads", "1"}, c.args...)
	if c.files > 0 {
		args = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, c.files), "sh"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if cmd.Dir = c.dir; cmd.Dir == "" {
		cmd.Dir = t.box("cwd")
	}
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.box("home"), "TMPDIR=" + t.box("home"),
		"HTTPS_PROXY=" + t.server.URL, "HTTP_PROXY=" + t.server.URL, "SSL_CERT_FILE=" + t.server.authority,
	}, c.env...)
	cmd.Stdin = c.stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.user != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.user), Gid: uint32(c.user)}
	}
	return cmd
}

// startChild starts a child; wait waits for it. A child's peak of memory is at least this
// process's, whose memory it begins with: that is kept small.
func (t *trial) startChild(c child) (wait func() (outcome, error), err error) {
	cmd := t.newCommand(&c)
	var stdout, stderr head
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	limit := c.limit
	if limit == 0 {
		limit = hangLimit
	}
	return func() (o outcome, err error) {
		kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		var killer <-chan time.Time
		if c.killAfter > 0 {
			killer = time.After(c.killAfter - min(c.killAfter, time.Since(begin)))
		}
		hang := time.After(limit)
		for ended := false; !ended; {
			select {
			case err = <-done:
				ended = true
			case <-killer:
				o.killed, killer = true, nil
				kill()
			case <-hang:
				o.hung = true
				kill()
			case <-t.ctx.Done():
				kill()
				<-done
				return o, t.ctx.Err()
			}
		}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return o, err
		}
		o.took, o.stdout, o.stderr = time.Since(begin), stdout.Bytes(), stderr.Bytes()
		o.status = cmd.ProcessState.ExitCode()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			o.signal = s.Signal()
		}
		o.killed = o.killed && o.signal == syscall.SIGKILL
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			o.peak, o.cpu = u.Maxrss<<10, time.Duration(u.Utime.Nano()+u.Stime.Nano())
		}
		return o, nil
	}, nil
}

// runChild runs a child. One that seems to hang is run once more with more time, since the
// machine may be busy. again, unless nil, undoes its effects before.
func (t *trial) runChild(c child, again func() error) (outcome, error) {
	wait, err := t.startChild(c)
	if err != nil {
		return outcome{}, err
	}
	o, err := wait()
	if err != nil || !o.hung || c.limit != 0 || c.stdin != nil {
		return o, err
	}
	if again != nil {
		if err := again(); err != nil {
			return o, err
		}
	}
	c.limit = slowLimit
	if wait, err = t.startChild(c); err != nil {
		return o, err
	}
	if o, err = wait(); err == nil && o.cpu > hangLimit {
		o.hung = true
	}
	return o, err
}

// checkSane returns an error for a stack of Go, a hang, a status other than 0, 1 and 2, a
// silent failure, and bytes that steer a terminal.
func (o *outcome) checkSane() error {
	words := string(o.stderr)
	switch {
	case o.hung:
		return fmt.Errorf("hangs: %.1f s, %.1f s of processor time: %s", o.took.Seconds(), o.cpu.Seconds(), shortenText(words))
	case strings.Contains(words, "goroutine ") || strings.Contains(words, "panic:") || strings.Contains(words, "fatal error:") || strings.Contains(words, "runtime error"):
		return fmt.Errorf("panics: %s", shortenText(words))
	case o.signal != 0:
		return fmt.Errorf("ends by signal %v: %s", o.signal, shortenText(words))
	case o.status < 0 || o.status > 2:
		return fmt.Errorf("exits %d: %s", o.status, shortenText(words))
	case o.status != 0 && !slices.ContainsFunc(strings.Split(words, "\n"), func(s string) bool { return strings.HasPrefix(s, "farfield: ") }):
		return fmt.Errorf("exits %d without a word: %s", o.status, shortenText(words))
	}
	for _, b := range o.stderr {
		if b < ' ' && b != '\n' && b != '\t' && b != '\r' || b == 0x7f {
			return fmt.Errorf("prints the control byte %#x in %q", b, shortenText(words))
		}
	}
	return nil
}

// shortenText is a text of at most some lines.
func shortenText(s string) string {
	const most = 600
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.TrimSpace(s)
}

// digestTree returns what lies in a folder: names and the SHA-256 of contents, as clean leaves
// them. A link is its target.
func digestTree(dir string, clean func(name string, data []byte) []byte) (map[string]string, error) {
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		switch {
		case d.IsDir():
			list[name] = "folder"
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			list[name] = "link to " + target
			return err
		case !d.Type().IsRegular():
			list[name] = d.Type().String()
			return nil
		}
		if clean == nil {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			_, err = io.Copy(h, f)
			list[name] = fmt.Sprintf("%x", h.Sum(nil)[:8])
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		list[name] = fmt.Sprintf("%x", sha256.Sum256(clean(name, data)))[:16]
		return nil
	})
	return list, err
}

// diffTrees names the first entry in which two trees differ; "" if they are the same.
func diffTrees(want, got map[string]string) string {
	var names []string
	for name := range want {
		names = append(names, name)
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		a, isThere := want[name]
		b, is := got[name]
		switch {
		case !is:
			return name + " is missing"
		case !isThere:
			return name + " is left over"
		case a != b:
			return name + " has another content"
		}
	}
	return ""
}
