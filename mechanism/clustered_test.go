package mechanism

import (
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// clusterSubjects are those that cluster queries.
func clusterSubjects() (list []subject) {
	for _, x := range []struct {
		top, clusters, bits, iterations, bias, scale string
	}{
		{"", "4", "9", "5", "true", "1/sqrt(D)"},
		{"", "70", "64", "2", "false", "2"},
		{"3", "4", "9", "5", "true", "1/sqrt(D)"},
		{"1", "3", "1", "1", "true", "0.5"},
		{"40", "40", "16", "3", "false", "1/sqrt(D)"},
	} {
		set := map[string]string{"clusters": x.clusters, "bits": x.bits, "iterations": x.iterations, "bias": x.bias, "scale": x.scale}
		name, label := "clustered", "clustered"
		if x.top != "" {
			name, label = "improved-clustered", "improved-clustered topk="+x.top
			set["topk"] = x.top
		}
		top, _ := strconv.Atoi(x.top)
		iterations, _ := strconv.Atoi(x.iterations)
		scale, _ := strconv.ParseFloat(x.scale, 64) // 0: of the width
		list = append(list, subject{
			label: label + " clusters=" + x.clusters + " bits=" + x.bits + " iterations=" + x.iterations, name: name,
			o: Options{Width: 3, Set: set}, average: true,
			whole: func(p numbers) oracle.HeadMatrix {
				return oracle.NewClustered(p["planes"], p["start"], iterations, top, scale)
			},
		})
	}
	return list
}

// What the clusters keep and work in is scratch, or Saved.
func TestClustersDoNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "clustered", map[string]string{"clusters": "5"})
	doNotAllocate(t, "improved-clustered", map[string]string{"clusters": "5", "topk": "7"})
}

// Planes of another width are refused, with both numbers.
func TestClusteredRefusesOtherWidths(t *testing.T) {
	m, err := New("clustered", Options{Width: 8})
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.NewHeads(1, 1, 3, 4)
	err = m.Forward(x, &attention.Call{Q: x, K: x, V: x}, nil)
	if want := "q: has width 4, planes of clustered are for 8"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
