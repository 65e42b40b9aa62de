package revealed

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/sallyport-go/sallyport/keystore"
)

func wrong(secret keystore.Secret, logger *slog.Logger) error {
	log.Println("issued", secret.Reveal())                             // want `shows .*: give the keystore.Secret`
	log.Default().Printf("%s", "key "+secret.Reveal())                 // want `shows a secret`
	logger.Info("issued", "key", fmt.Sprintf("<%s>", secret.Reveal())) // want `shows a secret`
	slog.Info("issued", slog.String("key", secret.Reveal()))           // want `shows a secret`
	text := []byte(secret.Reveal())
	token := "Bearer " + string(text)
	if len(token) == 0 {
		panic(token) // want `shows a secret`
	}
	if len(token) == 1 {
		return errors.New(token) // want `shows a secret`
	}
	return fmt.Errorf("no such key: %s", token) // want `shows a secret`
}

func right(w http.ResponseWriter, r *http.Request, secret keystore.Secret) error {
	fmt.Println("export KEY=" + secret.Reveal())
	fmt.Fprintln(os.Stderr, secret.Reveal())
	log.Print(secret)
	log.Print(len(secret.Reveal()), keystore.DigestOf(secret.Reveal()), secret.Reveal()[:8])
	r.Header.Set("Authorization", "Bearer "+secret.Reveal())
	text := secret.Reveal()
	fmt.Fprintln(w, text)
	text = "hidden"
	log.Print(text)
	return fmt.Errorf("%v was not sent", secret)
}
