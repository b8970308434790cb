package files

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

func TestUrgency(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for _, c := range []struct {
		name       string
		life, left time.Duration
		want       Urgency
	}{
		{"a year, a month and a day left", 365 * day, 31 * day, NotYet},
		{"a year, a month left", 365 * day, 30 * day, Soon},
		{"a year, a week and a day left", 365 * day, 8 * day, Soon},
		{"a year, a week left", 365 * day, 7 * day, Now},
		{"a year, over", 365 * day, 0, Expired},
		{"ninety days, a third left", 90 * day, 30 * day, NotYet},
		{"ninety days, a quarter left", 90 * day, 22 * day, Soon},
		{"a day, a third left", day, 8 * time.Hour, NotYet},
		{"a day, six hours left", day, 6 * time.Hour, Soon},
		{"a day, two hours left", day, 2 * time.Hour, Now},
		{"a day, long over", day, -day, Expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			until := now.Add(c.left)
			require.Equal(t, c.want, urgency(until.Add(-c.life), until, now))
		})
	}
	require.Equal(t, NotYet, urgency(time.Time{}, time.Time{}, now), "no certificate")
}

// TestReminders: a certificate with a validity of a year is never renewed. The log reports it when
// that becomes more urgent and once a day, and Expiring reports it all the time, until it is
// renewed.
func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		ca := pki.New(t, "ca")
		dir := t.TempDir()
		issue := func() pki.Pair {
			return ca.Issue(t, "client", pki.Until(time.Now().Add(365*day)))
		}
		pair := issue().Write(t, dir, "client")
		var log bytes.Buffer
		f := New("test", slog.New(slog.NewTextHandler(&log, nil)))
		_, err := f.Client(File{}, File{"etcd-cert", pair.Cert}, File{"etcd-key", pair.Key})
		require.NoError(t, err)
		after := func(d time.Duration) string {
			log.Reset()
			for range d / time.Hour {
				time.Sleep(time.Hour) //nolint:forbidigo // fake clock
				f.Look()
			}
			return log.String()
		}
		require.Empty(t, after(334*day))
		require.Empty(t, f.Expiring())
		require.Equal(t, 3, strings.Count(after(3*day), `level=WARN msg="certificate must be renewed soon" flag=--etcd-cert`))
		require.Equal(t, Soon, f.Expiring()[0].Urgency)
		after(20 * day)
		require.Contains(t, after(3*day), `level=ERROR msg="certificate must be renewed now"`)
		require.Contains(t, after(7*day), `level=ERROR msg="certificate has expired"`)
		require.Contains(t, f.Expiring()[0].String(), "the certificate in "+pair.Cert+" (--etcd-cert) has expired at")
		issue().Write(t, dir, "client")
		require.Contains(t, after(day), "loaded the changed file")
		require.Empty(t, f.Expiring())
		require.Empty(t, after(day))
	})
}

// TestValidity: in a chain the certificate that expires first counts, among CAs the last one. Other
// blocks are ignored.
func TestValidity(t *testing.T) {
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca := pki.New(t, "ca")
	a, b := ca.Issue(t, "a", pki.Until(late)), ca.Issue(t, "b", pki.Until(soon))
	both := [][]byte{bytes.Join([][]byte{a.Key, a.Cert, []byte("text\n"), b.Cert}, nil)}
	_, until := ChainValidity(both)
	require.True(t, until.Equal(soon))
	_, until = AuthorityValidity(both)
	require.True(t, until.Equal(late))
	_, until = ChainValidity([][]byte{a.Key})
	require.True(t, until.IsZero())
}

// TestClientChecksTheHost: Config accepts a certificate only for its host, also if that is an
// address. AnyHost accepts every certificate of its CAs, and no other.
func TestClientChecksTheHost(t *testing.T) {
	ca, stranger := pki.New(t, "ca"), pki.New(t, "stranger")
	dir := t.TempDir()
	path := filepath.Join(dir, "ca")
	require.NoError(t, os.WriteFile(path, ca.PEM(), 0o600))
	f := New("test", slog.New(slog.DiscardHandler))
	client, err := f.Client(File{"ca", path}, File{}, File{})
	require.NoError(t, err)
	system, err := f.Client(File{}, File{}, File{})
	require.NoError(t, err)

	here, nowhere := pki.Serve(t, ca.Issue(t, "here")), pki.Serve(t, ca.Issue(t, "nowhere", pki.NoHost))
	strange := pki.Serve(t, stranger.Issue(t, "here"))
	require.NoError(t, pki.Dial(t, here, client.Config()))
	require.ErrorContains(t, pki.Dial(t, nowhere, client.Config()), "127.0.0.1")
	require.ErrorContains(t, pki.Dial(t, strange, client.Config()), "unknown authority")
	require.NoError(t, pki.Dial(t, nowhere, client.AnyHost()))
	require.ErrorContains(t, pki.Dial(t, strange, client.AnyHost()), "unknown authority")
	require.ErrorContains(t, pki.Dial(t, nowhere, system.AnyHost()), "no CA")

	any := client.AnyHost()
	require.NoError(t, os.WriteFile(path, stranger.PEM(), 0o600))
	f.Look()
	f.Look()
	require.ErrorContains(t, pki.Dial(t, here, client.Config()), "unknown authority", "the CA was replaced")
	require.ErrorContains(t, pki.Dial(t, nowhere, any), "unknown authority")
	require.NoError(t, pki.Dial(t, strange, any))
}
