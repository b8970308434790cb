package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cni/doctor"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

// TestCertificateFindings: doctor warns of a certificate that expires soon, and fails for one
// that has expired.
func TestCertificateFindings(t *testing.T) {
	ca := pki.New(t, "ca")
	for left, level := range map[time.Duration]doctor.Level{5 * time.Minute: doctor.Warning, -time.Minute: doctor.Failed} {
		pair := ca.Issue(t, "agent", pki.Until(time.Now().Add(left))).Write(t, t.TempDir(), "agent")
		f := onNode{bridges: []string{"https://127.0.0.1:1"}, node: "192.168.33.11", tls: flags.TLS{
			Cert: files.File{Flag: "cert", Path: pair.Cert}, Key: files.File{Flag: "key", Path: pair.Key},
		}}
		follow := flags.ReadOnce()
		_, err := f.uplink("", follow, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		found := certificateFindings(follow)
		require.Len(t, found, 1)
		require.Equal(t, level, found[0].Level)
		require.Contains(t, found[0].Found, "(--cert)")
	}
}
