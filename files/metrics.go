package files

import "github.com/prometheus/client_golang/prometheus"

// describe returns the descriptions of a Follower's metrics.
type describe struct{ failures, loadedAt, current, ends *prometheus.Desc }

func newDescribe(prefix string) describe {
	of := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, []string{"file"}, nil)
	}
	return describe{
		failures: of("_file_failures_total", "Failed loads of a changed file, by flag."),
		loadedAt: of("_file_loaded_timestamp_seconds", "Time of the last successful load of a file, by flag."),
		current:  of("_file_current", "1 while the content of a file is in use, 0 while it is invalid and its former content is, by flag."),
		ends: of("_certificate_end_timestamp_seconds",
			"Expiry time of the certificate in use, by flag; for a file of CAs, of the CA that expires last."),
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
