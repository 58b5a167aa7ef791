package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/farfield-ml/farfield/client"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// served is a process of serve.
type served struct {
	*exec.Cmd
	t   *testing.T
	url string
}

// startServer starts serve and waits for its first line.
func startServer(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{Cmd: exec.Command(os.Args[0], append([]string{"serve", "--addr", "127.0.0.1:0", "--threads", "1", "--beyond-context"}, args...)...), t: t}
	s.Env = append(os.Environ(), "FARFIELD_AS_PROGRAM=1")
	s.Stderr = os.Stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	s.url = url
	return s
}

// call sends a request, whose answer needs the status, and reads its JSON into v.
func (s *served) call(status int, method, path, body string, v any) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != status {
		s.t.Fatalf("%s %s: status %d, want %d: %s, %v", method, path, a.StatusCode, status, text, err)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

func TestServedSessionsSurviveTheProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root := t.TempDir()
	dir, store := trained(t), filepath.Join(root, "store")
	var a, b struct {
		ID     string
		Tokens int
	}
	var first, second, third struct {
		IDs    []int32
		Tokens int
	}
	s := startServer(t, "--model", dir, "--store", store)
	refuses(t, "is in use by process", "serve", "--addr", "127.0.0.1:0", "--model", dir, "--store", store)
	s.call(201, "POST", "/v1/sessions", `{"text":"some text"}`, &a)
	s.call(201, "POST", "/v1/sessions/"+a.ID+"/fork", "", &b)
	s.call(200, "POST", "/v1/sessions/"+a.ID+"/generate", `{"max_tokens":20}`, &first)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := s.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); (err == nil) != (signal == syscall.SIGTERM) {
			t.Errorf("after %v: %v", signal, err)
		}
		s = startServer(t, "--model", dir, "--store", store)
		s.call(200, "GET", "/v1/sessions/"+a.ID, "", &a)
		if a.Tokens != first.Tokens {
			t.Errorf("after %v a session has %d tokens, want %d", signal, a.Tokens, first.Tokens)
		}
		if signal == syscall.SIGTERM {
			s.call(200, "POST", "/v1/sessions/"+b.ID+"/generate", `{"max_tokens":20}`, &second)
			s.call(200, "POST", "/v1/sessions/"+a.ID+"/generate", `{"max_tokens":5}`, &first)
		} else {
			s.call(200, "POST", "/v1/sessions/"+b.ID+"/generate", `{"max_tokens":5}`, &third)
		}
	}
	if len(second.IDs) != 20 || !slices.Equal(first.IDs, third.IDs) || first.Tokens != third.Tokens {
		t.Errorf("a session continues with %v, its restored fork with %v", first, third)
	}
}

// TestServerStopsWithinAStream: a stream that ends within --grace is whole and kept. A longer one
// ends with an error, and its session keeps the tokens that were sent.
func TestServerStopsWithinAStream(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root := t.TempDir()
	dir, store, ctx := trained(t), filepath.Join(root, "store"), context.Background()
	var held client.Session
	for _, of := range []struct {
		tokens int
		grace  string
	}{{100, "1m"}, {1 << 16, "1ms"}, {1, "1m"}} {
		s := startServer(t, "--model", dir, "--store", store, "--grace", of.grace)
		c, want := client.Client{URL: s.url}, held.Tokens
		var err error
		if held.ID == "" {
			held, err = c.Create(ctx, client.Input{Text: "some text"})
		} else if held, err = c.Get(ctx, held.ID); held.Tokens != want {
			t.Errorf("after a restart the session has %d tokens, want %d", held.Tokens, want)
		}
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		g, err := c.Generate(ctx, held.ID, client.Draw{MaxTokens: of.tokens, Temperature: 1}, func(client.Token) error {
			if count++; count > 1 {
				return nil
			}
			return s.Process.Signal(syscall.SIGTERM)
		})
		isWhole := err == nil && count == of.tokens && len(g.IDs) == count && g.Tokens == held.Tokens+int64(count)
		if isWhole == (of.grace == "1ms") {
			t.Errorf("--grace %s: %d of %d tokens came, %v", of.grace, count, of.tokens, err)
		}
		held.Tokens += int64(count)
		if err := s.Wait(); err != nil {
			t.Errorf("--grace %s: %v", of.grace, err)
		}
	}
}

// TestStoppingServerAnswersProbes: until the last request ends, probes say that the process lives and takes no more.
func TestStoppingServerAnswersProbes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	dir, ctx := trained(t), context.Background()
	s := startServer(t, "--model", dir, "--grace", "1m")
	c := client.Client{URL: s.url}
	held, err := c.Create(ctx, client.Input{Text: "some text"})
	if err != nil {
		t.Fatal(err)
	}
	errLeft := errors.New("the client leaves")
	_, err = c.Generate(ctx, held.ID, client.Draw{MaxTokens: 1 << 16, Temperature: 1}, func(client.Token) error {
		if err := s.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		for status := 200; status == 200; {
			a, err := http.Get(s.url + "/readyz")
			if err != nil {
				return err
			}
			a.Body.Close()
			if status = a.StatusCode; status != 200 && status != 503 {
				t.Errorf("/readyz: status %d, want 503", status)
			}
		}
		s.call(200, "GET", "/healthz", "", nil)
		s.call(503, "GET", "/v1/sessions", "", nil)
		return errLeft
	})
	if !errors.Is(err, errLeft) {
		t.Error(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStoppedServerLeavesNoGoroutine(t *testing.T) {
	dir := trained(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, in := io.Pipe()
	status := make(chan int, 1)
	go func() {
		args := []string{"serve", "--addr", "127.0.0.1:0", "--model", dir, "--beyond-context", "--grace", "1ms"}
		status <- farfield().RunVerb(args, &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard})
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c := client.Client{URL: strings.TrimPrefix(strings.TrimSpace(line), "listening on ")}
	s, err := c.Create(ctx, client.Input{Text: "some text"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Generate(context.Background(), s.ID, client.Draw{MaxTokens: 1 << 16}, func(client.Token) error {
		cancel()
		return nil
	})
	if got := <-status; got != 0 || err == nil {
		t.Errorf("status %d, and the stream ends with %v", got, err)
	}
	var stacks string
	for range 1000 { // goroutines end soon after they say so
		b := make([]byte, 1<<20)
		stacks = string(b[:runtime.Stack(b, true)])
		if !strings.Contains(stacks, "/internal/serve.") && !strings.Contains(stacks, "/internal/sessions.") {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("goroutines are left: %s", stacks)
}

func TestCurlReadsTheServer(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	root := t.TempDir()
	dir, keys := trained(t), filepath.Join(root, "keys.txt")
	if err := os.WriteFile(keys, []byte("# of the tests\nsecret-of-tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--model", dir, "--keys", keys)
	ask := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"-q", "--noproxy", "*", "-sS", "-w", "\n%{http_code}\n"}, args...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("curl %s: %v, %s, want %s", args, err, out, want)
		}
	}
	key := []string{"-H", "Authorization: Bearer secret-of-tests"}
	ask("\n401\n", s.url+"/v1/models")
	ask(`"status":"ready"`, s.url+"/readyz")
	ask("farfield_goroutines", append(key, s.url+"/metrics")...)
	ask(`"id":"run"`, append(key, s.url+"/v1/models")...)
	ask("data: [DONE]\n", append(key, "-N", s.url+"/v1/completions", "-d", `{"model":"run","prompt":"a","max_tokens":5,"stream":true}`)...)
	ask(`"object":"list"`, append(key, s.url+"/v1/embeddings", "-H", "Content-Type: application/json", "-d", `{"model":"run","input":["a b","c"]}`)...)
	ask("\n403\n", append(key, "-H", "Host: evil.example", s.url+"/v1/models")...)
	ask("<html", s.url+"/")
}

func TestServeRefusesBadFlags(t *testing.T) {
	root := t.TempDir()
	dir, keys := trained(t), filepath.Join(root, "keys.txt")
	if err := os.WriteFile(keys, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--addr: address x: missing port":          {"--addr", "x"},
		"--keys: ":                                 {"--keys", filepath.Join(root, "none")},
		"line 1 is no key of at least 8 printable": {"--keys", keys},
		"--rate: -1 is neither 0":                  {"--rate=-1"},
		"--grace: -1s is negative":                 {"--grace=-1s"},
		"\"x\" is not a number of bytes":           {"--memory", "x"},
	} {
		refuses(t, want, append([]string{"serve", "--model", dir}, args...)...)
	}
}
