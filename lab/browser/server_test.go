package browser

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const root = "../.."

// patience bounds each wait for the server or the page.
const patience = 20 * time.Second

var prebuilt = flag.String("command", "", "farfield command to walk with, in place of one that is built here")

// command builds farfield once.
var command = sync.OnceValues(func() (string, error) {
	if *prebuilt != "" {
		return *prebuilt, nil
	}
	dir, err := os.MkdirTemp("", "farfield-browser-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "farfield")
	build := exec.Command("go", "build", "-o", path, "./cmd/farfield")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := command(); err == nil && *prebuilt == "" {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// A server is a process of farfield serve.
type server struct {
	url     string
	process *exec.Cmd
}

// start serves a model whose texts may go on behind its context, and waits for its first line.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startWithin(t, append([]string{"--beyond-context"}, args...)...)
}

// startWithin serves a model within its context, and waits for its first line.
func startWithin(t *testing.T, args ...string) *server {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{process: exec.Command(path, append([]string{"serve"}, args...)...)}
	s.process.Stderr = os.Stderr
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("first line %q, %v", line, err)
	}
	s.url = address
	return s
}

// kill ends the process without any notice.
func (s *server) kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// train trains a model of a second with the flags of farfield train.
func train(t *testing.T, args ...string) string {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tiny")
	args = append([]string{"train", "--layers", "1", "--heads", "2", "--width", "16", "--batch", "4", "--steps", "20", "--out", dir}, args...)
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// trainDecoder trains a model of near and far field on a page of this repository.
func trainDecoder(t *testing.T) string {
	return train(t, "--task", "bytelm", "--data", filepath.Join(root, "CONTRIBUTING.md"), "--context", "64", "--mechanism", "fastmax", "--set", "window=16")
}

// trainClassifier trains a model of two classes, one with markup in its name.
func trainClassifier(t *testing.T) string {
	data := filepath.Join(t.TempDir(), "weather.csv")
	writeFile(t, data, "text,label\n"+strings.Repeat("it rains on the roof,rain\nthe sky is blue today,<i>sun</i>\n", 40))
	return train(t, "--task", "file", "--data", data, "--task-set", "length=4")
}

// trainChat trains a decoder of the Llama family and gives it a chat template.
func trainChat(t *testing.T) string {
	data := filepath.Join(t.TempDir(), "text")
	writeFile(t, data, strings.Repeat("the user asks and the assistant answers. ", 200))
	run := train(t, "--data", data, "--vocabulary", "bpe=300", "--norm", "rms", "--activation", "swiglu", "--positions", "rope", "--mechanism", "softmax", "--conv", "0", "--context", "64")
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "chat")
	if out, err := exec.Command(path, "export", "--model", run, "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	writeFile(t, filepath.Join(dir, "tokenizer_config.json"), `{"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "}`)
	return dir
}

// browserPath finds Chromium, or skips the test.
func browserPath(t *testing.T) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("none of %s is installed", strings.Join(names, ", "))
	return ""
}
