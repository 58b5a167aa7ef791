package reproduce

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/nn"
)

var precision = Row{
	Name:   "precision",
	Doc:    "what weights in 16 and 8 bits cost: the vectors of MiniLM, similarity (STS-B), retrieval (QMSum), next tokens (stories260K), a fine-tuned classifier (IMDB)",
	Source: "measurements of this project; models and texts are published",
	Claim:  "no table of this setting",
	pieces: precisionPieces, outcome: precisionOutcome,
}

// The folders that the row reads, in the folder of data sets. The classifier is a run of farfield train
// --init all-MiniLM-L6-v2 --freeze=false --task file --task-set length=128 --epochs 1 --threads 1 on the
// first 3000 training reviews.
const (
	encoderFolder    = "all-MiniLM-L6-v2"
	decoderFolder    = "stories260K"
	classifierFolder = "minilm-imdb"
)

// precisionConfig is a measurement of models in each precision.
type precisionConfig struct {
	Measure string `json:"measure"`
	Model   string `json:"model"`
	Data    string `json:"data"`  // file
	Count   int    `json:"count"` // pairs, meetings, KiB or reviews at most
}

// precisionScores are the results of a measurement, by precision.
type precisionScores struct {
	Samples int                           `json:"samples"`
	Scores  map[string]map[string]float64 `json:"scores"`
	// Each has the scores of single samples, where the first score is their mean.
	Each map[string][]float64 `json:"each,omitempty"`
}

// measured is what a measurement of a model gives.
type measured struct {
	samples int
	scores  map[string]float64
	vectors [][]float32 // of the texts; nil: none
	each    []float64   // scores of single samples; nil: there are none
}

const (
	similarity = "similarity"
	retrieval  = "retrieval"
	nextTokens = "next-tokens"
	classes    = "classes"
)

var precisions = []nn.Precision{nn.Float32, nn.BFloat16, nn.Int8}

func precisionConfigs(o *Options) []precisionConfig {
	return []precisionConfig{
		{similarity, encoderFolder, filepath.Join("stsb", "sts-test.csv"), 1379},
		{nextTokens, decoderFolder, filepath.Join("tinystories", "cs336_sample.txt"), pick(o.Budget, 60, 240, 1000)},
		{classes, classifierFolder, filepath.Join("imdb", "imdb_test_2500.tsv.gz"), pick(o.Budget, 500, 2500, 2500)},
		{retrieval, encoderFolder, filepath.Join("qmsum", "test.jsonl"), pick(o.Budget, 4, 35, 35)},
	}
}

func precisionPieces(o *Options) (list []Piece, err error) {
	for _, c := range precisionConfigs(o) {
		tokens := float64(c.Count) * map[string]float64{similarity: 30, retrieval: 30e3, nextTokens: 400, classes: 128}[c.Measure]
		list = append(list, Piece{Name: c.Measure, Config: c, FLOPs: 2.2 * 22e6 * tokens, run: func(w *Work) (any, error) { return c.run(w, o.Data) }})
	}
	return list, nil
}

// run measures each precision. It returns an error that wraps task.ErrNoData if model or data are not
// in the folder.
func (c *precisionConfig) run(w *Work, folder string) (*precisionScores, error) {
	model, data := filepath.Join(folder, c.Model), filepath.Join(folder, c.Data)
	for _, path := range []string{model, data} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: is not there; %w", path, task.ErrNoData)
		}
	}
	text, err := os.ReadFile(data)
	if err != nil {
		return nil, err
	}
	measure := map[string]func(context.Context, *farfield.Model, []byte) (*measured, error){
		similarity: c.similarity, retrieval: c.retrieval, nextTokens: c.nextTokens, classes: c.classes,
	}[c.Measure]
	r := &precisionScores{Scores: map[string]map[string]float64{}, Each: map[string][]float64{}}
	var exact [][]float32
	for i, p := range precisions {
		w.reportShare(float64(i) / float64(len(precisions)))
		m, err := farfield.Open(model, farfield.WithPrecision(p))
		if err != nil {
			return nil, err
		}
		x, err := measure(w.Ctx, m, text)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			exact = x.vectors
		} else if x.vectors != nil {
			x.scores["cosine"], x.scores["least cosine"] = cosines(x.vectors, exact)
		}
		r.Samples, r.Scores[p.String()] = x.samples, x.scores
		if x.each != nil {
			r.Each[p.String()] = x.each
		}
	}
	return r, nil
}

// embedAll returns the vectors of texts, which may be longer than the model reads.
func embedAll(ctx context.Context, m *farfield.Model, texts []string) ([][]float32, error) {
	v, err := m.Embed(ctx, texts...)
	if cut := (*farfield.TruncatedError)(nil); errors.As(err, &cut) {
		err = nil
	}
	return v, err
}

// similarity returns Spearman's correlation of the cosines of pairs with their grades, and the vectors.
func (c *precisionConfig) similarity(ctx context.Context, m *farfield.Model, data []byte) (*measured, error) {
	var texts []string
	var grades []float64
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) < 7 || len(grades) == c.Count {
			continue
		}
		grade, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return nil, err
		}
		texts, grades = append(texts, f[5], f[6]), append(grades, grade)
	}
	v, err := embedAll(ctx, m, texts)
	if err != nil {
		return nil, err
	}
	found := make([]float64, len(grades))
	for i := range found {
		found[i] = cosineOf(v[2*i], v[2*i+1])
	}
	return &measured{len(grades), map[string]float64{"correlation": correlation(rankNumbers(found), rankNumbers(grades))}, v, nil}, nil
}

// meetingFile is a line of QMSum.
type meetingFile struct {
	Queries []struct {
		Query  string     `json:"query"`
		Marked [][]string `json:"relevant_text_span"`
	} `json:"specific_query_list"`
	Turns []struct {
		Speaker string `json:"speaker"`
		Content string `json:"content"`
	} `json:"meeting_transcripts"`
}

// retrieval returns the share of the ten nearest turns of the meeting of a query, or of all marked turns
// if there are fewer, that are marked.
func (c *precisionConfig) retrieval(ctx context.Context, m *farfield.Model, data []byte) (*measured, error) {
	var all [][]float32
	var each []float64
	number := 0
	for line := range bytes.Lines(data) {
		if number++; number > c.Count {
			break
		}
		var f meetingFile
		if err := json.Unmarshal(line, &f); err != nil {
			return nil, err
		}
		var texts []string
		for _, t := range f.Turns {
			texts = append(texts, t.Speaker+": "+t.Content)
		}
		for _, q := range f.Queries {
			texts = append(texts, q.Query)
		}
		v, err := embedAll(ctx, m, texts)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
		turns := v[:len(f.Turns)]
		for i, q := range f.Queries {
			marked := map[int]bool{}
			for _, span := range q.Marked {
				if len(span) != 2 {
					return nil, fmt.Errorf("meeting %d: a span has %d ends", number, len(span))
				}
				a, err := strconv.Atoi(span[0])
				b, err2 := strconv.Atoi(span[1])
				if err := errors.Join(err, err2); err != nil {
					return nil, err
				}
				for k := a; k <= b && k < len(turns); k++ {
					marked[k] = true
				}
			}
			order := make([]int, len(turns))
			near := make([]float64, len(turns))
			for k := range turns {
				order[k], near[k] = k, cosineOf(turns[k], v[len(turns)+i])
			}
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(near[b], near[a]) })
			found := 0
			for _, k := range order[:min(10, len(order))] {
				if marked[k] {
					found++
				}
			}
			each = append(each, float64(found)/float64(min(10, max(1, len(marked)))))
		}
	}
	recall, _ := mean(each)
	return &measured{len(each), map[string]float64{"recall@10": recall}, all, each}, nil
}

// nextTokens returns the bits a byte of the beginning of a text. Nats a token have the same ratio.
func (c *precisionConfig) nextTokens(ctx context.Context, m *farfield.Model, data []byte) (*measured, error) {
	text := strings.ToValidUTF8(string(data[:min(len(data), c.Count<<10)]), "")
	lines, err := m.Score(ctx, text)
	if err != nil {
		return nil, err
	}
	bits := 0.0
	for _, l := range lines {
		bits += l.Bits
	}
	return &measured{len(text), map[string]float64{"bits a byte": bits / float64(len(text))}, nil, nil}, nil
}

// classes returns the accuracy on reviews, as many of each class.
func (c *precisionConfig) classes(ctx context.Context, m *farfield.Model, data []byte) (*measured, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	names := map[string]string{"0": "negative", "1": "positive"}
	var texts, want []string
	lines := bufio.NewScanner(z)
	for lines.Buffer(nil, 1<<20); lines.Scan() && len(texts) < c.Count; {
		f := strings.SplitN(lines.Text(), "\t", 4)
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d: has %d columns, 4 are needed", len(texts)+1, len(f))
		}
		texts, want = append(texts, f[3]), append(want, names[f[0]])
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	list, err := m.Classify(ctx, texts...)
	if cut := (*farfield.TruncatedError)(nil); err != nil && !errors.As(err, &cut) {
		return nil, err
	}
	right := make([]float64, len(list))
	for i, p := range list {
		if p.Label == want[i] {
			right[i] = 1
		}
	}
	accuracy, _ := mean(right)
	return &measured{len(list), map[string]float64{"accuracy": accuracy}, nil, right}, nil
}

// cosines returns the mean and the least cosine of vectors with others.
func cosines(v, w [][]float32) (mean, least float64) {
	least = 1
	for i := range v {
		x := cosineOf(v[i], w[i])
		mean, least = mean+x/float64(len(v)), min(least, x)
	}
	return mean, least
}

func cosineOf(v, w []float32) float64 {
	var vw, vv, ww float64
	for i := range v {
		a, b := float64(v[i]), float64(w[i])
		vw, vv, ww = vw+a*b, vv+a*a, ww+b*b
	}
	return vw / math.Sqrt(vv*ww)
}

// rankNumbers returns the ranks of x; equal numbers share theirs.
func rankNumbers(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	ranks := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = float64(i+j-1) / 2
		}
		i = j
	}
	return ranks
}

// correlation is Pearson's.
func correlation(x, y []float64) float64 {
	a, _ := mean(x)
	b, _ := mean(y)
	var xy, xx, yy float64
	for i := range x {
		xy, xx, yy = xy+(x[i]-a)*(y[i]-b), xx+(x[i]-a)*(x[i]-a), yy+(y[i]-b)*(y[i]-b)
	}
	return xy / math.Sqrt(xx*yy)
}

// interval returns half of the 95 % interval of the change of the first score, as text, from the differences of
// single samples; "": there are none.
func (s *precisionScores) interval(p string) string {
	var list []float64
	exact := s.Each["f32"]
	for i, x := range s.Each[p][:min(len(exact), len(s.Each[p]))] {
		list = append(list, x-exact[i])
	}
	if len(list) < 2 {
		return ""
	}
	_, deviation := mean(list)
	return fmt.Sprintf(" ± %.5f", 1.96*deviation/math.Sqrt(float64(len(list))))
}

func precisionOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	t := report.Table{
		Title: "Weights in fewer bits", Head: []string{"measure", "samples", "f32", "bf16", "int8"},
		Note: "The same texts through the same model, opened with each precision. Cosines are of vectors with those of f32.",
	}
	for _, c := range precisionConfigs(o) {
		x, found, err := get[precisionScores](r, c.Measure)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		names := map[string]bool{}
		for _, scores := range x.Scores {
			for name := range scores {
				names[name] = true
			}
		}
		for _, name := range []string{"correlation", "recall@10", "bits a byte", "accuracy", "cosine", "least cosine"} {
			if !names[name] {
				continue
			}
			cells := []string{fmt.Sprintf("%s of %s, %s", name, c.Model, strings.SplitN(filepath.ToSlash(c.Data), "/", 2)[0]), strconv.Itoa(x.Samples)}
			for _, p := range precisions {
				cell := none
				if score, has := x.Scores[p.String()][name]; has {
					cell = strconv.FormatFloat(score, 'f', 5, 64)
				}
				cells = append(cells, cell)
			}
			addRow(&t, cells...)
			if exact, has := x.Scores["f32"][name]; has {
				out.find("%s, %s: bf16 changes it by %+.5f%s, int8 by %+.5f%s.", c.Measure, name,
					x.Scores["bf16"][name]-exact, x.interval("bf16"), x.Scores["int8"][name]-exact, x.interval("int8"))
			}
		}
	}
	if len(t.Rows) > 0 {
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}
