package reproduce

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/report"
)

// Outcome is what came of a reproduction: published numbers beside measured
// ones.
type Outcome struct {
	Name     string         `json:"name"`
	Doc      string         `json:"doc"`
	Source   string         `json:"source"`
	Claim    string         `json:"claim"`
	Lacks    string         `json:"lacks,omitempty"`
	Budget   string         `json:"budget"`
	Command  string         `json:"command"`
	Findings []string       `json:"findings"` // a line each, computed from the numbers
	Tables   []report.Table `json:"tables"`
	Figures  []Drawing      `json:"-"`
	Sections []PageSection  `json:"-"` // further sections of the page
	Records  []*Record      `json:"pieces"`
	Missing  []string       `json:"missing,omitempty"` // pieces that are not there
	// MissingHours is what the missing pieces take at 50 billion operations a second.
	MissingHours float64 `json:"missing_hours,omitempty"`
}

func addRow(t *report.Table, cells ...string) { t.Rows = append(t.Rows, cells) }

// Drawing is a figure with the name of its file.
type Drawing struct {
	Name string
	report.Figure
}

// PageSection is a section of the page other than a figure, such as maps or a picture, with
// the name of its file.
type PageSection struct {
	Name string
	report.Section
}

// published says what is published, and what of it no budget makes.
func (o *Outcome) published() string {
	text := "Published: " + o.Claim + "."
	if o.Lacks != "" {
		text += " No budget makes: " + o.Lacks + "."
	}
	return text
}

// find adds a finding.
func (o *Outcome) find(format string, args ...any) {
	o.Findings = append(o.Findings, fmt.Sprintf(format, args...))
}

// listed joins what a finding lists, such as the labels of mechanisms, which have commas.
func listed(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}

// Spent is the time that the pieces took.
func (o *Outcome) Spent() time.Duration {
	var sum float64
	for _, r := range o.Records {
		sum += r.Seconds
	}
	return time.Duration(sum * float64(time.Second))
}

// none stands where there is no number.
const none = "–"

// digits writes x with three digits.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return none
	case math.IsInf(x, 0):
		return strconv.FormatFloat(x, 'g', 3, 64)
	case a != 0 && a < 1e-3:
		return strconv.FormatFloat(x, 'e', 1, 64)
	case a >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

// percent writes a share.
func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// deviationOf returns the standard error of a share of n samples.
func deviationOf(share, n float64) float64 { return math.Sqrt(share * (1 - share) / n) }

// mean returns the mean of x and, of two or more, its standard deviation.
func mean(x []float64) (m, deviation float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	if len(x) < 2 {
		return m, 0
	}
	for _, v := range x {
		deviation += (v - m) * (v - m) / float64(len(x)-1)
	}
	return m, math.Sqrt(deviation)
}
