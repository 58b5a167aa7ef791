package generate

import (
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// TestLongTextEqualsTheModelReadingItAtOnce lets a model that learned rotated positions in a context of 1024
// write 20,000 tokens from its state. They are the tokens that the same model
// finds likeliest when it reads the whole text at once, memory stays what it
// was, and a text saved and restored half-way goes on to the same bits. Times
// are logged.
func TestLongTextEqualsTheModelReadingItAtOnce(t *testing.T) {
	if !suite.IsLong() {
		t.Skip("runs with -long")
	}
	const tokens, context = 20000, 1024
	text, err := task.NewText(task.InventText(1, 1<<20), token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	preset, err := train.LookupPreset("tiny")
	if err != nil {
		t.Fatal(err)
	}
	c := preset.Config
	c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Context = 4, 64, 4, context
	c.Model.Positions = model.Rotary
	c.Batch, c.Steps, c.WarmUp, c.EvalEvery, c.FinalSamples = 2, 150, 10, 0, (1<<14)/context
	run, err := train.New(c, text, "")
	if err != nil {
		t.Fatal(err)
	}
	score, err := run.Train(t.Context(), train.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("trained to %.3f bits per byte", score.Bits)

	m := run.Model()
	vocab := m.Config().Vocab
	draw, err := NewSampler(Sampling{Temperature: 1, Seed: 3}, vocab)
	if err != nil {
		t.Fatal(err)
	}
	// write continues a text to the given length and returns its tokens with
	// the logits that each was drawn from.
	write := func(s *model.Session, last int32, each func(i int)) (written []int32, logits [][]float32) {
		for i := int(s.Tokens()); i < tokens; i++ {
			each(i)
			row, err := s.Step(t.Context(), []int32{last}, 1)
			if err != nil {
				t.Fatal(err)
			}
			logits = append(logits, slices.Clone(row))
			if last, err = draw.DrawToken(row, uint64(i)); err != nil {
				t.Fatal(err)
			}
			written = append(written, last)
		}
		return written, logits
	}
	session, err := m.NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	var at [tokens + 1]time.Time
	var saved []byte
	var memory int64
	written, logits := write(session, '\n', func(i int) {
		if i == tokens/2 {
			memory = session.Bytes()
			if saved, err = session.AppendBinary(nil); err != nil {
				t.Fatal(err)
			}
		}
		at[i] = time.Now()
	})
	at[tokens] = time.Now()
	if now := session.Bytes(); now != memory {
		t.Errorf("memory grew from %d to %d bytes", memory, now)
	}
	restored, err := m.RestoreSession(saved)
	if err != nil {
		t.Fatal(err)
	}
	again, logitsAgain := write(restored, written[tokens/2-1], func(int) {})
	if !slices.Equal(again, written[tokens/2:]) || !slices.EqualFunc(logitsAgain, logits[tokens/2:], slices.Equal) {
		t.Error("the restored text goes on differently")
	}
	written = append([]int32{'\n'}, written[:tokens-1]...) // what the model read
	ms := func(i, j int) float64 {                         // median of a token
		var list []float64
		for ; i < j; i++ {
			list = append(list, at[i+1].Sub(at[i]).Seconds()*1e3)
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	t.Logf("a token takes %.4f ms in the second thousand, %.4f ms in the last: %.3f times", ms(1000, 2000), ms(tokens-1000, tokens), ms(tokens-1000, tokens)/ms(1000, 2000))

	whole := make([]float32, tokens*vocab)
	if err := m.Logits(t.Context(), &model.Batch{B: 1, N: tokens, Tokens: written}, whole); err != nil {
		t.Fatal(err)
	}
	// Both forms of a logit are within limit of its exact value, so a gap of
	// more than twice that cannot be turned round.
	const u = 0x1p-24
	var near, exceptions int
	var worst float64
	for i, step := range logits {
		row := whole[i*vocab:][:vocab]
		var largest, apart float64
		for k, x := range row {
			largest = max(largest, float64(x), -float64(x))
			d := float64(x) - float64(step[k])
			apart = max(apart, d, -d)
		}
		worst = max(worst, apart/(u*largest))
		best, gap := top(row)
		if gap <= 2*256*u*largest {
			near++
			continue
		}
		if other, _ := top(step); other != best {
			exceptions++
		}
	}
	t.Logf("%d of %d gaps are within the bound; logits of the two forms differ by at most %.0f·u of the largest", near, tokens, worst)
	if exceptions > 0 {
		t.Errorf("%d tokens have another likeliest token in step form", exceptions)
	}
	if worst > 256 {
		t.Errorf("logits differ by %.0f·u, the limit is 256·u", worst)
	}
}

// top returns the likeliest token and how far it is ahead of the next.
func top(logits []float32) (token int, gap float64) {
	second := float32(0)
	for k, x := range logits {
		switch {
		case k == 0:
		case x > logits[token]:
			token, second = k, logits[token]
		case k == 1 || x > second:
			second = x
		}
	}
	return token, float64(logits[token]) - float64(second)
}
