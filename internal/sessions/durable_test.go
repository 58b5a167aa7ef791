package sessions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
)

func TestSessionsSurviveClose(t *testing.T) {
	t.Parallel()
	for name, model := range mechanisms(t) {
		t.Run(name, func(t *testing.T) {
			o := Options{Model: model, Store: t.TempDir()}
			m := open(t, o)
			ids := tokens(900, 1)
			s := must[Info](t)(m.Create(ctx, ids[:800]))
			f := must[Info](t)(m.Fork(ctx, s.ID))
			e := must[Info](t)(m.Create(ctx, nil))
			s = must[Info](t)(m.Append(ctx, s.ID, ids[800:]))
			before := m.List(t.Context())
			for i := range before {
				before[i].Used = time.Time{} // it is not stored
			}
			closed(t, m)
			m = open(t, o)
			if after := m.List(t.Context()); !slices.Equal(before, after) {
				t.Errorf("sessions are %v, were %v", after, before)
			}
			requireState(t, m, s.ID, ids)
			requireState(t, m, f.ID, ids[:800])
			requireState(t, m, e.ID, nil)
			if n := m.Stats().Replayed; n > 0 {
				t.Errorf("%d tokens are read a second time", n)
			}
			want := continuation(t, model, ids, sampled)
			if r := must[Result](t)(m.Generate(ctx, s.ID, sampled, nil)); !slices.Equal(r.IDs, want) {
				t.Errorf("drawn %v, want %v", r.IDs, want)
			}
		})
	}
}

func TestCloseSavesStatesThatFillTheMemory(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	for i := range uint64(4) {
		must[Info](t)(m.Create(ctx, tokens(50, i)))
	}
	for i := range uint64(5) {
		must[Result](t)(m.Complete(ctx, tokens(50, 4+i), Draw{MaxTokens: 1}, nil))
	}
	s := m.Stats()
	m.mu.Lock()
	m.o.Memory = s.StateBytes + s.PrefixBytes
	m.mu.Unlock()
	closed(t, m)
	if n := len(files(t, o.Store, statesFolder)); n != 9 {
		t.Errorf("%d states are on disk, want 9: 4 sessions and 5 prefixes", n)
	}
}

func TestLogAloneRestoresSessions(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	ids := tokens(1000, 1)
	s := must[Info](t)(m.Create(ctx, ids[:300]))
	var forks []Info
	for i := 300; i < 1000; i += 100 {
		s = must[Info](t)(m.Append(ctx, s.ID, ids[i:i+100]))
		forks = append(forks, must[Info](t)(m.Fork(ctx, s.ID)))
	}
	grandchild := must[Info](t)(m.Fork(ctx, forks[1].ID))
	must[Info](t)(m.Append(ctx, grandchild.ID, ids[500:600]))
	drop(m)
	if err := os.RemoveAll(filepath.Join(o.Store, statesFolder)); err != nil {
		t.Fatal(err)
	}
	m = open(t, o)
	requireState(t, m, s.ID, ids)
	if err := m.Delete(ctx, s.ID); err != nil { // forks keep what they share
		t.Fatal(err)
	}
	for i, f := range forks {
		requireState(t, m, f.ID, ids[:400+100*i])
	}
	requireState(t, m, grandchild.ID, ids[:600])
	for _, i := range m.List(t.Context()) {
		if err := m.Delete(ctx, i.ID); err != nil {
			t.Fatal(err)
		}
	}
	err := m.store.view(func(tx transaction) error {
		if k, _ := tx.Bucket(tokenBucket).Cursor().First(); k != nil {
			return fmt.Errorf("tokens %x stay without a session", k)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Names of the environment of a child that a test kills.
const (
	childStore = "FARFIELD_SESSIONS_CHILD"
	childSeed  = "FARFIELD_SESSIONS_SEED"
)

// acknowledgement is a line of a child: a session and the number of its tokens, or the
// announcement of a deletion.
type acknowledgement struct {
	ID     string
	Tokens int64
	IDs    []int32 // of a new session, or those that are added
	Parent string
	Going  bool // the session's deletion is requested next
	Gone   bool
}

// TestMain runs the child where the environment asks for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childStore); dir != "" {
		seed, _ := strconv.ParseUint(os.Getenv(childSeed), 10, 64)
		runChild(dir, seed)
		return
	}
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	os.Exit(m.Run())
}

// childOptions are the options of a child and of the process that reads its store.
func childOptions(t testing.TB, dir string) Options {
	return Options{Model: newNearFar(t), Identity: "a model", Store: dir, Memory: 1 << 20, Disk: 4 << 20}
}

// runChild makes requests, without an end, and prints what is acknowledged.
func runChild(dir string, seed uint64) {
	var t testing.B
	m, err := Open(ctx, childOptions(&t, dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	key := rng.New(seed)
	for i := uint64(0); ; i += 8 {
		at := func(n uint64, j uint64) int { return int(key.Uint64(i+j) % n) }
		list := m.List(context.Background())
		var a acknowledgement
		var info Info
		var err error
		switch {
		case len(list) == 0 || at(6, 0) == 0 && len(list) < 20:
			a.IDs = tokens(at(400, 1), uint64(at(4, 2)))
			info, err = m.Create(ctx, a.IDs)
		default:
			s := list[at(uint64(len(list)), 1)]
			switch n := at(8, 3); {
			case n == 0 && len(list) < 20:
				a.Parent = s.ID
				info, err = m.Fork(ctx, s.ID)
			case n == 1 && len(list) > 10:
				a.Gone, info = true, s
				printLine(acknowledgement{ID: s.ID, Going: true})
				err = m.Delete(ctx, s.ID)
			case n < 4 && s.Tokens > 0:
				var r Result
				r, err = m.Generate(ctx, s.ID, Draw{Sampling: Sampling{Temperature: 1, Seed: i}, MaxTokens: 1 + at(30, 4)}, nil)
				a.IDs, info = r.IDs, r.Info
			default:
				a.IDs = tokens(at(300, 4), uint64(at(1000, 5)))
				info, err = m.Append(ctx, s.ID, a.IDs)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		a.ID, a.Tokens = info.ID, info.Tokens
		printLine(a)
	}
}

// printLine prints a line of a child.
func printLine(a acknowledgement) {
	line, _ := json.Marshal(a)
	os.Stdout.Write(append(line, '\n'))
}

// TestKilledProcessLosesNothing kills a process at random moments. Its next owner has all
// acknowledged tokens of every session, and the states of a cold computation.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	rounds := 3
	if suite.IsLong() {
		rounds = 100
	}
	dir := t.TempDir()
	sessions, deleted := map[string][]int32{}, map[string]bool{}
	acknowledged := 0
	for round := range rounds {
		n, going := killChild(t, dir, uint64(round), sessions, deleted)
		acknowledged += n
		m := open(t, childOptions(t, dir))
		held := map[string]bool{}
		for _, i := range m.List(t.Context()) {
			if held[i.ID] = true; deleted[i.ID] {
				t.Fatalf("round %d: session %s is there after its deletion", round, i.ID)
			}
			_, ids, err := m.store.read(i.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			// The request at the moment of the kill may be in the log, or not.
			if known := sessions[i.ID]; len(ids) < len(known) || !slices.Equal(ids[:len(known)], known) {
				t.Fatalf("round %d: session has %d tokens, %d are acknowledged", round, len(ids), len(known))
			}
			sessions[i.ID] = ids
			requireState(t, m, i.ID, ids)
		}
		if !held[going] { // a deletion may be in the log before its acknowledgement
			delete(sessions, going)
			deleted[going] = true
		}
		for id := range sessions {
			if !held[id] {
				t.Fatalf("round %d: session %s is lost", round, id)
			}
		}
		drop(m)
	}
	t.Logf("%d kills, %d acknowledged requests", rounds, acknowledged)
}

// killChild starts a child, kills it after some acknowledgements, and adds them to
// sessions and deleted. It returns their number and the session of the last announced deletion.
func killChild(t *testing.T, dir string, seed uint64, sessions map[string][]int32, deleted map[string]bool) (n int, going string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childStore+"="+dir, childSeed+"="+strconv.FormatUint(seed, 10))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	after := 1 + int(rng.New(seed).Uint64(1)%40)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a acknowledgement
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			break // the end of a line that was cut
		}
		if a.Going {
			going = a.ID
			continue
		}
		if n++; n == after {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case a.Gone:
			delete(sessions, a.ID)
			deleted[a.ID] = true
		case a.Parent != "":
			sessions[a.ID] = slices.Clone(sessions[a.Parent])
		default:
			sessions[a.ID] = append(sessions[a.ID], a.IDs...)
		}
		if !a.Gone && int64(len(sessions[a.ID])) != a.Tokens {
			t.Fatalf("session has %d tokens, its acknowledgement says %d", len(sessions[a.ID]), a.Tokens)
		}
	}
	_ = c.Wait()
	if n < after {
		t.Fatalf("child ended by itself: %s", stderr.String())
	}
	return n, going
}

func TestTransactionsAreSynced(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), Store: t.TempDir()})
	err := m.store.view(func(tx transaction) error {
		if db := tx.DB(); db.NoSync || db.NoGrowSync {
			t.Errorf("NoSync is %v, NoGrowSync is %v", db.NoSync, db.NoGrowSync)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestStoreHasOneOwner(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	m := open(t, o)
	o.Identity = "a model"
	if _, err := Open(ctx, o); err == nil {
		t.Error("a second owner has the store")
	}
	closed(t, m)
	open(t, o)
}

func TestStoreOfAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	closed(t, open(t, o))
	o.Identity = "int8:another model"
	if _, err := Open(ctx, o); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), `"f32 `) || !strings.Contains(err.Error(), `"int8 another`) {
		t.Errorf("error is %v, want %v with both precisions", err, ErrForeign)
	}
}

func TestFoldersOfTheStoreAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("folders have no modes")
	}
	o := Options{Model: newNearFar(t), Store: t.TempDir()}
	for _, folder := range []string{statesFolder, importsFolder} { // of an earlier version
		if err := os.Mkdir(filepath.Join(o.Store, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, o)
	for _, folder := range []string{statesFolder, importsFolder} {
		if info := must[os.FileInfo](t)(os.Stat(filepath.Join(o.Store, folder))); info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", folder, info.Mode())
		}
	}
}

// A record has the lines that its tokens are in, however often it was forked.
func TestForksWithoutTokensDoNotGrowTheRecord(t *testing.T) {
	t.Parallel()
	s, _, _, err := openStore(t.TempDir(), "a model", once)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ids := []int32{3, 1, 4}
	if err := s.create("0", record{}, ids); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		from, to := strconv.Itoa(i), strconv.Itoa(i+1)
		if err := errors.Join(s.fork(from, to, "", 0), s.delete(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.append("5", []int32{1, 5}, 0); err != nil {
		t.Fatal(err)
	}
	if r, got, err := s.read("5", 0); err != nil || len(r.Segments) != 2 || !slices.Equal(got, append(ids, 1, 5)) {
		t.Errorf("%d segments have the tokens %v, error %v", len(r.Segments), got, err)
	}
	if len(s.lines) != 2 {
		t.Errorf("%d lines are counted, want 2", len(s.lines))
	}
}
