package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// figure is a line of the table.
type figure struct {
	name, measured, bound string
	within                bool
}

// atMost is a figure that may be no longer than a bound.
func atMost(name string, took, bound time.Duration) figure {
	return figure{name, short(took), "at most " + short(bound), took <= bound}
}

// comparison is a duration beside that of what it is compared with.
type comparison struct{ ours, bare time.Duration }

// rate is how much ours gets done while bare does 1.
func (c comparison) rate() float64 { return float64(c.bare) / float64(c.ours) }

// short is a duration with three digits.
func short(d time.Duration) string {
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

// write prints the table.
func write(out io.Writer, figures []figure) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tMEASURED\tBOUND\t")
	for _, f := range figures {
		verdict := "within"
		if !f.within {
			verdict = "OUTSIDE"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.name, f.measured, f.bound, verdict)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the figures: %w", err)
	}
	return nil
}
