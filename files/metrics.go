package files

import "github.com/prometheus/client_golang/prometheus"

// describe is the descriptions of a Follower's metrics.
type describe struct{ failures, loadedAt, current, ends *prometheus.Desc }

func newDescribe(prefix string) describe {
	of := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, []string{"file"}, nil)
	}
	return describe{
		failures: of("_file_failures_total", "Times that a file had changed and could not be taken up, by the flag that names it."),
		loadedAt: of("_file_loaded_timestamp_seconds", "When a file was taken up last, by the flag that names it."),
		current:  of("_file_current", "1 while what a file says is in force, 0 while it is broken and an older content is, by the flag that names it."),
		ends: of("_certificate_end_timestamp_seconds",
			"When a certificate that is in use expires, by the flag that names its file; of a file of CAs, when the last of them expires."),
	}
}

// Describe implements prometheus.Collector.
func (f *Follower) Describe(to chan<- *prometheus.Desc) {
	to <- f.failures
	to <- f.loadedAt
	to <- f.current
	to <- f.ends
}

// Collect implements prometheus.Collector.
func (f *Follower) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sets {
		gauge := func(of *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, s.Flag)
		}
		to <- prometheus.MustNewConstMetric(f.failures, prometheus.CounterValue, float64(s.failures), s.Flag)
		gauge(f.loadedAt, float64(s.loadedAt.UnixMilli())/1000)
		if s.current {
			gauge(f.current, 1)
		} else {
			gauge(f.current, 0)
		}
		if !s.until.IsZero() {
			gauge(f.ends, float64(s.until.Unix()))
		}
	}
}
