package access

import (
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

// metricPrefix begins the names of metrics.
const metricPrefix = "coe_bridge"

type metrics struct {
	logins     *prometheus.CounterVec // by reason
	unrecorded prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_logins_failed_total",
			Help: "Logins that failed, by reason: password, certificate, token, limited (not looked at, since too many had failed), or unjudged (the API server could not be asked about a token).",
		}, []string{"reason"}),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_bridge_audit_failures_total",
			Help: "Writes that could not be recorded in the audit log.",
		}),
	}
	for _, reason := range []string{wrongPassword, badCertificate, badToken, limitedLogin, unjudgedLogin} {
		m.logins.WithLabelValues(reason)
	}
	registry.MustRegister(m.logins, m.unrecorded)
	return m
}
