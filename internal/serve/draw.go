package serve

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/farfield-ml/farfield/internal/grammar"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// penalties holds the fields of a request that change logits.
type penalties struct {
	Frequency  *float64            `json:"frequency_penalty" doc:"Taken from the logit of a token for each time that the answer has it, -2 to 2 (0)."`
	Presence   *float64            `json:"presence_penalty" doc:"Taken from the logit of a token that the answer has, -2 to 2 (0)."`
	Repetition *float64            `json:"repetition_penalty" doc:"Divides positive logits of tokens of the prompt and the answer, and multiplies negative ones; above 0 to 10 (1)."`
	Repeat     *float64            `json:"repeat_penalty" doc:"Another name of repetition_penalty."`
	Bias       map[string]*float64 `json:"logit_bias" doc:"Numbers that are added to the logits of token ids, -100 to 100."`
}

// Limits of fields that change logits.
const (
	maxPenalty    = 2
	maxRepetition = 10
	maxBias       = 100
	maxBiases     = 4096
	maxTopTokens  = 20
)

// biases are penalties that are checked.
type biases struct {
	frequency, presence, repetition float64
	bias                            map[int32]float64
}

// isNeutral reports whether logits stay as they are.
func (b *biases) isNeutral() bool {
	return b.frequency == 0 && b.presence == 0 && b.repetition == 1 && len(b.bias) == 0
}

// check returns the settings of p for a vocabulary. It returns an error for an invalid field.
func (p *penalties) check(vocab int) (b biases, err error) {
	b.repetition = 1
	if p.Repetition != nil && p.Repeat != nil && *p.Repetition != *p.Repeat {
		return b, badFieldf("repeat_penalty", "is %v, repetition_penalty is %v; one is needed", *p.Repeat, *p.Repetition)
	}
	for _, f := range []struct {
		name      string
		value     *float64
		dst       *float64
		low, high float64
	}{
		{"frequency_penalty", p.Frequency, &b.frequency, -maxPenalty, maxPenalty}, {"presence_penalty", p.Presence, &b.presence, -maxPenalty, maxPenalty},
		{"repetition_penalty", p.Repetition, &b.repetition, 1e-3, maxRepetition}, {"repeat_penalty", p.Repeat, &b.repetition, 1e-3, maxRepetition},
	} {
		if f.value == nil {
			continue
		}
		if *f.dst = *f.value; !(*f.dst >= f.low && *f.dst <= f.high) {
			return b, badFieldf(f.name, "%v is not between %v and %v", *f.dst, f.low, f.high)
		}
	}
	if len(p.Bias) > maxBiases {
		return b, badFieldf("logit_bias", "has %d tokens, at most %d", len(p.Bias), maxBiases)
	}
	for name, x := range p.Bias {
		id, err := strconv.ParseInt(name, 10, 32)
		switch {
		case err != nil || id < 0 || int(id) >= vocab:
			return b, badFieldf("logit_bias", "%.20q is no id of the %d tokens", name, vocab)
		case x == nil:
			return b, badFieldf("logit_bias."+name, "is null, needs a number")
		case !(*x >= -maxBias && *x <= maxBias):
			return b, badFieldf("logit_bias."+name, "%v is not between %d and %d", *x, -maxBias, maxBias)
		}
		if b.bias == nil {
			b.bias = map[int32]float64{}
		}
		b.bias[int32(id)] = *x
	}
	return b, nil
}

// drawing is what a request draws for each of its prompts.
type drawing struct {
	sessions.Draw
	biases
	stops   []string
	top     int              // number of most likely tokens whose probabilities are returned beside a token's; -1: no probabilities
	echo    bool             // return probabilities of the prompt's tokens too
	grammar *grammar.Grammar // of the text; nil: any
}

// tokenProb is the log-probability of a token, and of the most likely tokens at its place.
type tokenProb struct {
	id      int32
	isFirst bool // of a text: it has no probability
	log     float64
	top     []tokenLog
}

// tokenLog is the log-probability of a token.
type tokenLog struct {
	id  int32
	log float64
}

// shaper follows one draw. It changes logits, and keeps log-probabilities of the model's own.
type shaper struct {
	*drawing
	ends    []int32
	counts  map[int32]int // of the answer
	seen    []int32       // tokens of prompt and answer, each once
	isSeen  map[int32]bool
	matcher *grammar.Matcher
	raw     []float32 // logits of the model
	err     error

	mu    sync.Mutex
	probs []tokenProb
}

// newShaper returns the shaper of a draw after prompt.
func (s *Server) newShaper(d *drawing, prompt []int32) *shaper {
	x := &shaper{drawing: d, ends: s.o.EndTokens}
	if !d.isNeutral() {
		x.counts, x.isSeen = map[int32]int{}, map[int32]bool{}
		if d.repetition != 1 {
			for _, id := range prompt {
				x.see(id)
			}
		}
	}
	if d.grammar != nil {
		x.matcher = d.grammar.Match(s.vocab())
	}
	return x
}

// vocab returns the bytes of the model's tokens.
func (s *Server) vocab() *grammar.Vocab {
	s.makeVocab.Do(func() { s.tokenVocab = grammar.NewVocab(s.o.Card.Vocab, s.o.Tokens.Bytes) })
	return s.tokenVocab
}

// see counts a token among those of prompt and answer.
func (x *shaper) see(id int32) {
	if !x.isSeen[id] {
		x.isSeen[id] = true
		x.seen = append(x.seen, id)
	}
}

// hook sets the functions of a draw that it needs.
func (x *shaper) hook(d *sessions.Draw) {
	if x.counts == nil && x.matcher == nil && x.top < 0 {
		return
	}
	d.Shape, d.Drawn = x.shape, x.drawn
}

// shape changes logits, as sessions.Draw.Shape does.
func (x *shaper) shape(_ []int32, logits []float32) error {
	if x.err != nil {
		return x.err
	}
	if x.top >= 0 {
		x.raw = append(x.raw[:0], logits...)
	}
	if x.counts != nil {
		for _, id := range x.seen {
			switch l := logits[id]; {
			case x.repetition == 1:
			case l > 0:
				logits[id] = float32(float64(l) / x.repetition)
			default:
				logits[id] = float32(float64(l) * x.repetition)
			}
			if n := x.counts[id]; n > 0 {
				logits[id] -= float32(float64(n)*x.frequency + x.presence)
			}
		}
		for id, b := range x.bias {
			logits[id] += float32(b)
		}
	}
	if x.matcher == nil {
		return nil
	}
	mask, isEnd, err := x.matcher.Allowed()
	if err != nil {
		return badFieldf("response_format", "%v", err)
	}
	some := false
	for id := range logits {
		if mask[id/64]>>(id%64)&1 == 1 || isEnd && slices.Contains(x.ends, int32(id)) {
			some = true
			continue
		}
		logits[id] = float32(math.Inf(-1))
	}
	if !some {
		return badFieldf("response_format", "no token of the vocabulary goes on here")
	}
	return nil
}

// drawn counts a token, as sessions.Draw.Drawn does.
func (x *shaper) drawn(id int32) {
	if x.counts != nil {
		x.see(id)
		x.counts[id]++
	}
	if x.matcher != nil && !slices.Contains(x.ends, id) {
		x.err = x.matcher.Accept(id)
	}
	if x.top >= 0 {
		x.tell(id, x.raw)
	}
}

// watch collects the probabilities of a prompt's tokens; it is a sessions.Draw.Prompt.
func (x *shaper) watch(prompt []int32) func(i int, logits []float32) {
	x.probs = append(x.probs, tokenProb{id: prompt[0], isFirst: true})
	return func(i int, logits []float32) {
		if i+1 < len(prompt) {
			x.tell(prompt[i+1], logits)
		}
	}
}

// tell keeps the log-probability of id after logits, and those of the most likely tokens.
func (x *shaper) tell(id int32, logits []float32) {
	p := tokenProb{id: id}
	most := logits[0]
	for _, l := range logits {
		most = max(most, l)
	}
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - most))
	}
	norm := float64(most) + math.Log(sum)
	p.log = float64(logits[id]) - norm
	if x.top > 0 {
		p.top = make([]tokenLog, 0, x.top+1)
		for i, l := range logits {
			if len(p.top) == x.top && float64(l)-norm <= p.top[x.top-1].log {
				continue
			}
			at := len(p.top)
			for at > 0 && p.top[at-1].log < float64(l)-norm {
				at--
			}
			p.top = slices.Insert(p.top, at, tokenLog{int32(i), float64(l) - norm})
			p.top = p.top[:min(len(p.top), x.top)]
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.probs = append(x.probs, p)
}

// told returns the probabilities of tokens from ≤ i < to of prompt and answer.
func (x *shaper) told(from, to int) []tokenProb {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.probs[from:to]
}

// completion is the text that continues one prompt.
type completion struct {
	text   string
	reason string
	probs  []tokenProb // of the tokens that emit was not called with
	mean   float64     // log-probability of a drawn token
	result sessions.Result
}

// emitter gets a part of a text, and the probabilities of its tokens if they were asked for.
type emitter func(text string, probs []tokenProb) error

// continueText draws tokens after ids and calls emit, unless nil, with each part of their text.
// The text ends before the first stop. A stop that is the text of a special token ends the draw at this token,
// which has no text. An end token has none either.
func (s completionAPI) continueText(ctx context.Context, ids []int32, q *drawing, emit emitter) (*completion, error) {
	d, begun := q.Draw, s.o.Clock()
	if q.grammar != nil {
		if err := s.o.Sessions.Reserve(grammar.MatcherBytes); err != nil {
			return nil, err
		}
		defer s.o.Sessions.Release(grammar.MatcherBytes)
	}
	shaper := s.newShaper(q, ids)
	shaper.hook(&d)
	before := 0 // tokens of the prompt that have probabilities
	if q.echo && q.top >= 0 {
		d.Prompt, before = shaper.watch(ids), len(ids)
	}
	d.Stop = s.stopper(q.stops, func() bool { return shaper.matcher != nil && shaper.matcher.IsComplete() })
	text := s.newStopText(q.stops)
	var whole []byte
	read, sent := before, 0 // probabilities that are known, and those that emit was called with
	each := func(part string) error {
		if part == "" {
			return nil
		}
		if emit == nil {
			whole = append(whole, part...)
			return nil
		}
		var probs []tokenProb
		if q.top >= 0 {
			probs, sent = shaper.told(sent, read), read
		}
		return emit(part, probs)
	}
	result, err := streamTokens(ctx, func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
		return s.o.Sessions.Complete(ctx, ids, d, emit)
	}, func(id int32) error {
		if read++; read == before+1 {
			s.metrics.firstToken.Observe(s.o.Clock().Sub(begun).Seconds())
		}
		part, err := text.add(id)
		if err != nil {
			return err
		}
		return each(part)
	})
	if err != nil {
		return nil, err
	}
	if err := each(text.end()); err != nil {
		return nil, err
	}
	c := &completion{text: string(whole), reason: result.Reason, result: result}
	if q.top >= 0 {
		all := shaper.told(0, len(shaper.probs))
		c.probs = all[sent:]
		for _, p := range all[before:] {
			c.mean += p.log / float64(len(result.IDs))
		}
	}
	return c, nil
}

// newStopText returns the text of drawn tokens, which ends before a stop.
func (s *Server) newStopText(stops []string) stopText {
	return stopText{decoder: textDecoder{tokens: s.o.Tokens, ends: s.o.EndTokens}, stops: stops}
}

// stopper returns sessions.Draw.Stop for stops: it reports whether one is found, or also reports true. It returns nil
// if nothing stops a draw.
func (s *Server) stopper(stops []string, also func() bool) func(ids []int32) bool {
	if len(stops) == 0 {
		return func([]int32) bool { return also() }
	}
	watch := s.newStopText(stops)
	special := s.findSpecialStops(stops)
	read := 0
	return func(ids []int32) bool {
		for ; read < len(ids) && !watch.isEnded; read++ {
			// An id outside the vocabulary is the error of the text.
			_, _ = watch.add(ids[read])
		}
		return watch.isEnded || slices.Contains(special, ids[len(ids)-1]) || also()
	}
}

// findSpecialStops returns the ids of the stops that are texts of special tokens.
func (s *Server) findSpecialStops(stops []string) []int32 {
	var list []int32
	for _, stop := range stops {
		// A stop without ids is found in the text alone.
		ids, err := s.o.Tokens.Encode(stop, false)
		if err != nil || len(ids) != 1 {
			continue
		}
		if b, err := s.o.Tokens.Bytes(nil, ids[0]); err == nil && len(b) == 0 {
			list = append(list, ids[0])
		}
	}
	return list
}

// parseStops returns the texts of a field that is a string or an array of strings. It returns an error if one is empty
// or long, or there are too many.
func (s *Server) parseStops(data json.RawMessage) ([]string, error) {
	if stop := compact(data); stop == "" || stop == "null" || stop == "[]" && !s.o.Strict {
		return nil, nil
	}
	stops, err := parseTexts("stop", data)
	if err != nil {
		return nil, err
	}
	if len(stops) > maxStops {
		return nil, badFieldf("stop", "has %d texts, at most %d", len(stops), maxStops)
	}
	for i, stop := range stops {
		if stop == "" || len(stop) > maxStopLength {
			return nil, badFieldf("stop", "text %d has %d bytes, needs 1 to %d", i, len(stop), maxStopLength)
		}
	}
	return stops, nil
}

// responseFormat is the form of an answer.
type responseFormat struct {
	Type   *string `json:"type" doc:"text, json_object or json_schema."`
	Schema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema" doc:"A subset of JSON Schema; other constructs are refused by their path."`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema" doc:"The schema of json_schema."`
}

// grammar returns the grammar of a form; nil: any text. It returns an error if the form or its schema is invalid.
func (f *responseFormat) grammar(field string) (*grammar.Grammar, error) {
	if f == nil {
		return nil, nil
	}
	kind := "text"
	if f.Type != nil {
		kind = *f.Type
	}
	switch kind {
	case "text":
		return nil, nil
	case "json_object":
		return grammar.Object(), nil
	case "json_schema":
	default:
		return nil, badFieldf(field+".type", "%.40q is none of text, json_object and json_schema", kind)
	}
	if f.Schema == nil || len(f.Schema.Schema) == 0 {
		return nil, badFieldf(field+".json_schema.schema", "is missing")
	}
	return newGrammar([]grammar.Piece{{Schema: f.Schema.Schema, Path: field + ".json_schema.schema"}})
}

// newGrammar returns the grammar of one of several sequences of pieces, with the error of a request.
func newGrammar(choices ...[]grammar.Piece) (*grammar.Grammar, error) {
	g, err := grammar.New(choices...)
	var schema *grammar.SchemaError
	if errors.As(err, &schema) {
		e := badFieldf(schema.Path, "%s", schema.Message)
		e.Code = "unsupported"
		return nil, e
	}
	return g, err
}
