// Package figures prints measured figures as a table, with their bounds.
package figures

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Figure is a line of the table. A figure without a Bound is never outside.
type Figure struct {
	Name, Measured, Bound string
	Within                bool
}

// AtMost returns the figure of a duration with an upper bound.
func AtMost(name string, took, bound time.Duration) Figure {
	return Figure{name, Short(took), "at most " + Short(bound), took <= bound}
}

// Rate returns the figure of a rate, where the rate of the reference is 1, with a lower bound.
// measured is the whole text.
func Rate(name, measured string, rate, bound float64) Figure {
	return Figure{name, measured, fmt.Sprintf("at least %g", bound), rate >= bound}
}

// Unbound returns a figure without a bound.
func Unbound(name, measured string) Figure { return Figure{Name: name, Measured: measured} }

// Percentile returns the duration that p of 100 durations do not exceed, or 0 if there are none.
func Percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// Short returns a duration with three digits.
func Short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d.Abs() >= unit.size {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
}

// Outside reports whether a figure is outside of its bound.
func Outside(all []Figure) bool { return slices.ContainsFunc(all, Figure.outside) }

func (f Figure) outside() bool { return f.Bound != "" && !f.Within }

// verdict returns the result of a figure for the table.
func (f Figure) verdict() string {
	switch {
	case f.outside():
		return "OUTSIDE"
	case f.Bound == "":
		return ""
	}
	return "within"
}

// Write prints the table.
func Write(out io.Writer, all []Figure) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tMEASURED\tBOUND\t")
	for _, f := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Name, f.Measured, f.Bound, f.verdict())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the figures: %w", err)
	}
	return nil
}
