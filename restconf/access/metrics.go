package access

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why logins fail.
const (
	wrongPassword  = "password"
	badCertificate = "certificate"
	badToken       = "token"
	limitedLogin   = "limited"
	unjudgedLogin  = "unjudged"
)

type metrics struct {
	logins          *prometheus.CounterVec // by reason
	failures        *prometheus.CounterVec // by file, as the flag has it
	loadedAt        *prometheus.GaugeVec
	current         *prometheus.GaugeVec
	certificateEnds prometheus.Gauge
	unrecorded      prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	file := []string{"file"}
	m := &metrics{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_logins_failed_total",
			Help: "Logins that failed, by reason: password, certificate, token, limited (not looked at, since too many had failed), or unjudged (the API server could not be asked about a token).",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_file_failures_total",
			Help: "Times that a file had changed and could not be taken up, by the flag that names it.",
		}, file),
		loadedAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_file_loaded_timestamp_seconds",
			Help: "When a file was taken up last, by the flag that names it.",
		}, file),
		current: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_file_current",
			Help: "1 while what a file says is in force, 0 while it is broken and an older content is, by the flag that names it.",
		}, file),
		certificateEnds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_bridge_certificate_end_timestamp_seconds",
			Help: "When the server's certificate ends; 0 without TLS.",
		}),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_bridge_audit_failures_total",
			Help: "Writes that could not be recorded in the audit log.",
		}),
	}
	for _, reason := range []string{wrongPassword, badCertificate, badToken, limitedLogin, unjudgedLogin} {
		m.logins.WithLabelValues(reason)
	}
	registry.MustRegister(m.logins, m.failures, m.loadedAt, m.current, m.certificateEnds, m.unrecorded)
	return m
}

// loaded notes that a file was taken up.
func (m *metrics) loaded(file string) {
	m.loadedAt.WithLabelValues(file).Set(float64(time.Now().UnixMilli()) / 1000)
	m.current.WithLabelValues(file).Set(1)
	m.failures.WithLabelValues(file)
}

// failed notes that a file is broken, and an older content in force.
func (m *metrics) failed(file string) {
	m.failures.WithLabelValues(file).Inc()
	m.current.WithLabelValues(file).Set(0)
}
