package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// card is what the server says of its model.
type card struct {
	ID      string
	Details struct {
		HasSessions bool     `json:"has_sessions"`
		HasChat     bool     `json:"has_chat"`
		Embeds      bool     `json:"embeds"`
		Classes     []string `json:"classes"`
		Vocab       int      `json:"vocab"`
	} `json:"farfield"`
}

// drive sends the traffic of all clients and prints the report. It returns an error if an answer
// is wrong or the server grew.
func drive(ctx context.Context, o *options, t *target, w io.Writer) error {
	var models struct{ Data []card }
	if err := readJSON(ctx, t.url+"/v1/models", &models); err != nil {
		return err
	}
	if len(models.Data) == 0 {
		return errors.New("the server has no model")
	}
	runCtx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	list := make([]*client, o.clients)
	var wait sync.WaitGroup
	begin := time.Now()
	for i := range list {
		list[i] = newClient(t, o, models.Data[0], i)
		wait.Go(func() { list[i].run(runCtx) })
	}
	samples, err := takeSamples(runCtx, t, max(time.Second/4, o.duration/600))
	cancel()
	wait.Wait()
	elapsed := time.Since(begin)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	r := &report{counts: map[outcome]int64{}}
	for _, c := range list {
		c.checkAlone(ctx)
		c.deleteAll(ctx)
		r.add(c)
	}
	r.print(w, elapsed)
	return errors.Join(r.judge(), printTrends(w, samples, o.duration >= 2*time.Minute))
}

// takeSamples reads the state of the server until ctx ends. It returns an error if the server does
// not answer.
func takeSamples(ctx context.Context, t *target, every time.Duration) ([]sample, error) {
	var list []sample
	clock := time.NewTicker(every)
	defer clock.Stop()
	for {
		s, err := t.readSample(context.WithoutCancel(ctx))
		if err != nil {
			return list, err
		}
		list = append(list, s)
		select {
		case <-clock.C:
		case <-ctx.Done():
			return list, nil
		}
	}
}

// readJSON reads the JSON of an address into v.
func readJSON(ctx context.Context, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	return json.NewDecoder(a.Body).Decode(v)
}

// outcome is a kind of request and the status of its answer; 0: the client went away.
type outcome struct {
	kind   string
	status int
}

// report sums the results of all clients.
type report struct {
	counts              map[outcome]int64
	tokens              int64
	first, gap, longest times
	checked             int
	failures            []string
}

// add adds the results of a client.
func (r *report) add(c *client) {
	for k, n := range c.counts {
		r.counts[k] += n
	}
	r.tokens += c.tokens
	r.first.merge(&c.first)
	r.gap.merge(&c.gap)
	r.longest.merge(&c.longest)
	r.checked += c.checked
	r.failures = append(r.failures, c.failures...)
}

// print prints the counts and times.
func (r *report) print(w io.Writer, elapsed time.Duration) {
	var total int64
	rows := map[string]string{}
	keys := make([]outcome, 0, len(r.counts))
	for k := range r.counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b outcome) int { return a.status - b.status })
	for _, k := range keys {
		total += r.counts[k]
		name := fmt.Sprint(k.status)
		if k.status == 0 {
			name = "left"
		}
		rows[k.kind] += fmt.Sprintf(" %s: %d,", name, r.counts[k])
	}
	kinds := make([]string, 0, len(rows))
	for kind := range rows {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	fmt.Fprintf(w, "%d requests in %.0f s, %d tokens drawn (%.0f a second)\n", total, elapsed.Seconds(), r.tokens, float64(r.tokens)/elapsed.Seconds())
	for _, kind := range kinds {
		fmt.Fprintf(w, "  %-20s%s\n", kind, rows[kind][:len(rows[kind])-1])
	}
	r.first.print(w, "first token")
	r.gap.print(w, "between two tokens")
	r.longest.print(w, "longest wait of a stream between two tokens")
	fmt.Fprintf(w, "%d answers compared with the same request alone, %d failures\n", r.checked, len(r.failures))
	for _, text := range r.failures[:min(len(r.failures), 20)] {
		fmt.Fprintf(w, "  %s\n", text)
	}
}

// judge returns an error if a request failed.
func (r *report) judge() error {
	if len(r.failures) > 0 {
		return fmt.Errorf("%d failures, the first: %s", len(r.failures), r.failures[0])
	}
	return nil
}

// printTrends prints what changed from the first to the last tenth. It returns an error for what
// grew, if growth is judged.
func printTrends(w io.Writer, samples []sample, isJudged bool) error {
	var err error
	for _, t := range describeTrends(samples) {
		fmt.Fprintf(w, "%-24s first tenth %8.0f, last tenth %8.0f, largest %8.0f\n", t.name, t.first, t.last, t.largest)
		if t.hasGrown && isJudged {
			err = errors.Join(err, fmt.Errorf("%s: grew from %.0f to %.0f", t.name, t.first, t.last))
		}
	}
	return err
}
