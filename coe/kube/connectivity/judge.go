package connectivity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cause is why a probe did not connect.
type Cause string

// The causes.
const (
	NoAnswer Cause = "no answer"
	Refused  Cause = "connection refused"
	NoName   Cause = "the name cannot be resolved"
	Other    Cause = "cannot connect"
	// NotRun means that the probe did not run, so that nothing is known about the path.
	NotRun Cause = "the probe did not run"
)

// Outcome is what a probe has found: a connection, or the cause why there is none.
type Outcome struct {
	Cause  Cause // empty: the probe connected
	Detail string
}

// Read reads what agnhost connect has written before it failed: a line that begins with one word for
// the cause.
func Read(text string) Outcome {
	for line := range strings.Lines(text) {
		word, detail, _ := strings.Cut(strings.TrimSpace(line), ":")
		detail = strings.TrimSpace(detail)
		switch word {
		case "TIMEOUT":
			return Outcome{Cause: NoAnswer}
		case "REFUSED":
			return Outcome{Cause: Refused}
		case "DNS":
			return Outcome{NoName, detail}
		case "OTHER", "UNKNOWN":
			return Outcome{Other, detail}
		}
	}
	return Outcome{NotRun, strings.TrimSpace(text)}
}

// String describes an outcome for a person.
func (o Outcome) String() string {
	if o.Detail == "" {
		return cmp.Or(string(o.Cause), "connected")
	}
	return string(o.Cause) + ": " + o.Detail
}

// Status is the verdict about a check.
type Status string

// The verdicts.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is a check with its verdict.
type Result struct {
	Check
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Next says what to do about a failure.
	Next string `json:"next,omitempty"`
	// Tries is the number of probes until the verdict.
	Tries int `json:"tries,omitempty"`
}

// IsMet reports whether an outcome is the wanted one. Otherwise the probe is worth another try, because
// a cluster needs a moment to enforce what has just been created.
func (c Check) IsMet(o Outcome) bool {
	if c.Blocked {
		return o.Cause != "" && o.Cause != NotRun
	}
	return o.Cause == ""
}

// Known returns the result of a check that needs no probe.
func (c Check) Known() (Result, bool) {
	switch {
	case c.Skip != "":
		return Result{Check: c, Status: Skipped, Reason: c.Skip}, true
	case c.Problem != "":
		return Result{Check: c, Status: Failed, Reason: c.Problem, Next: c.next(Outcome{})}, true
	case c.Kind == PodStart:
		return Result{Check: c, Status: Passed}, true
	}
	return Result{}, false
}

// Judge returns the result of a check, by the outcome of its last probe.
func (c Check) Judge(last Outcome, tries int) Result {
	r := Result{Check: c, Status: Passed, Tries: tries}
	if c.IsMet(last) {
		return r
	}
	r.Status, r.Reason, r.Next = Failed, last.String(), c.next(last)
	switch {
	case c.Blocked && last.Cause == "":
		r.Reason = "connected, although a policy denies it"
	case c.Kind == FullPackets && last.Cause == NoAnswer:
		r.Reason = fmt.Sprintf("no answer to packets of %d bytes", c.Bytes)
	}
	return r
}

// next says what to do about a failure.
func (c Check) next(last Outcome) string {
	if last.Cause == NotRun {
		return "repeat the test with --keep, and run the probe by hand: kubectl exec"
	}
	kind := c.Kind
	if kind == DNS && last.Cause != NoName {
		kind = PodToService // the name was resolved
	}
	for _, k := range kinds {
		if k.kind == kind {
			both := []string{c.FromNode, c.ToNode}
			slices.Sort(both)
			return strings.NewReplacer("FROM", c.FromNode, "TO", c.ToNode, "BOTH", strings.Join(both, " and ")).Replace(k.next)
		}
	}
	return ""
}

// Report is the result of a test.
type Report struct {
	Namespace string   `json:"namespace"`
	Nodes     []string `json:"nodes"`
	Passed    int      `json:"passed"`
	Failed    int      `json:"failed"`
	Skipped   int      `json:"skipped"`
	Results   []Result `json:"checks"`
}

// NewReport counts and sorts results.
func NewReport(namespace string, nodes []Node, results []Result) *Report {
	r := &Report{Namespace: namespace, Nodes: []string{}, Results: results}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, n.Name)
	}
	r.Passed, r.Failed, r.Skipped = Count(results)
	order := Kinds()
	slices.SortStableFunc(r.Results, func(a, b Result) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) })
	return r
}

// Count counts results by their verdict.
func Count(results []Result) (passed, failed, skipped int) {
	for _, r := range results {
		switch r.Status {
		case Passed:
			passed++
		case Failed:
			failed++
		default:
			skipped++
		}
	}
	return passed, failed, skipped
}

// ByKind returns the results of a kind.
func (r *Report) ByKind(kind Kind) (results []Result) {
	for _, result := range r.Results {
		if result.Kind == kind {
			results = append(results, result)
		}
	}
	return results
}
