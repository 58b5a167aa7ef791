package openai

import (
	"bufio"
	"errors"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var prebuilt = flag.String("command", "", "farfield command to test, in place of one that is built here")

const key = "secret-of-tests"

// template begins each message with its role.
const template = `{"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"}`

// serve starts farfield serve with a model and returns a client of it.
func serve(t *testing.T, program, model string) openai.Client {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "serve", "--model", model, "--beyond-context", "--addr", "127.0.0.1:0", "--keys", keys)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // a killed process has an error
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// run runs farfield.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("farfield %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// prepare builds the program and a small decoder with a chat template.
func prepare(t *testing.T) (program, model string) {
	t.Helper()
	dir := t.TempDir()
	program, model = filepath.Join(dir, "farfield"), filepath.Join(dir, "tiny")
	if *prebuilt != "" {
		program = *prebuilt
	} else {
		build := exec.Command("go", "build", "-o", program, "./cmd/farfield")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("the user asks and the assistant answers. ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, program, "train", "--data", text, "--vocabulary", "bpe=300", "--norm", "rms", "--activation", "swiglu", "--positions", "rope", "--mechanism", "softmax",
		"--preset", "tiny", "--steps", "8", "--context", "20", "--out", filepath.Join(dir, "run"))
	run(t, program, "export", "--model", filepath.Join(dir, "run"), "--out", model)
	if err := os.WriteFile(filepath.Join(model, "tokenizer_config.json"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	return program, model
}

func TestClientReadsTheServer(t *testing.T) {
	program, model := prepare(t)
	c := serve(t, program, model)

	t.Run("models", func(t *testing.T) {
		page, err := c.Models.List(t.Context())
		if err != nil || len(page.Data) != 1 || page.Data[0].ID != "tiny" {
			t.Fatalf("%v, %v", page, err)
		}
		if one, err := c.Models.Get(t.Context(), "tiny"); err != nil || one.ID != "tiny" {
			t.Errorf("%v, %v", one, err)
		}
	})

	t.Run("completions", func(t *testing.T) {
		q := openai.CompletionNewParams{
			Model: "tiny", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("the user")},
			MaxTokens: openai.Int(12), Temperature: openai.Float(0.7), Seed: openai.Int(3),
		}
		whole, err := c.Completions.New(t.Context(), q)
		if err != nil || len(whole.Choices) != 1 || whole.Usage.CompletionTokens == 0 {
			t.Fatalf("%v, %v", whole, err)
		}
		stream := c.Completions.NewStreaming(t.Context(), q)
		joined := ""
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				joined += choice.Text
			}
		}
		if err := stream.Err(); err != nil || joined != whole.Choices[0].Text {
			t.Errorf("a stream joins to %q, %v, the answer is %q", joined, err, whole.Choices[0].Text)
		}
	})

	t.Run("chat", func(t *testing.T) {
		q := openai.ChatCompletionNewParams{
			Model:               "tiny",
			Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be brief"), openai.UserMessage("who asks?")},
			MaxCompletionTokens: openai.Int(12), Seed: openai.Int(3),
		}
		whole, err := c.Chat.Completions.New(t.Context(), q)
		if err != nil || len(whole.Choices) != 1 || whole.Choices[0].Message.Role != "assistant" {
			t.Fatalf("%v, %v", whole, err)
		}
		q.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		stream := c.Chat.Completions.NewStreaming(t.Context(), q)
		sum := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			if !sum.AddChunk(stream.Current()) {
				t.Fatal("a chunk does not fit the ones before")
			}
		}
		if err := stream.Err(); err != nil || len(sum.Choices) != 1 || sum.Choices[0].Message.Content != whole.Choices[0].Message.Content ||
			sum.Usage.TotalTokens != whole.Usage.TotalTokens {
			t.Errorf("a stream joins to %+v, %v, the answer is %+v", sum.Choices, err, whole.Choices)
		}
	})

	t.Run("embeddings", func(t *testing.T) {
		q := openai.EmbeddingNewParams{Model: "tiny", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"the user", "answers"}}}
		list, err := c.Embeddings.New(t.Context(), q)
		if err != nil || len(list.Data) != 2 || list.Usage.PromptTokens == 0 {
			t.Fatalf("%v, %v", list, err)
		}
		for i, one := range list.Data {
			var square float64
			for _, x := range one.Embedding {
				square += x * x
			}
			if one.Index != int64(i) || !(square > 0) || math.IsInf(square, 0) {
				t.Errorf("vector %d has the index %d and the square %v", i, one.Index, square)
			}
		}
	})

	t.Run("errors", func(t *testing.T) {
		var known *openai.Error
		_, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "other", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("a")}})
		if !errors.As(err, &known) || known.StatusCode != 404 || known.Param != "model" || known.Code != "model_not_found" {
			t.Errorf("an unknown model is %v", err)
		}
		_, err = c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", N: openai.Int(0), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("a")}})
		if !errors.As(err, &known) || known.StatusCode != 400 || known.Param != "n" {
			t.Errorf("no choice is %v", err)
		}
		_, err = c.Models.List(t.Context(), option.WithAPIKey("another-key"))
		if !errors.As(err, &known) || known.StatusCode != 401 {
			t.Errorf("another key is %v", err)
		}
	})
}
