//! The storefront as a service of a server. Has no rules.

use bookstore::Bookstore;
use hosting::{Error, Front, Host, Meanings, Open, Reader, Refused, Service, Serving, Site, access::Scope};

use crate::{live::Live, routes, shop::Shop};

/// The settings: there are none but `web.enabled`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings;

impl hosting::Settings for Settings {
    const MEANINGS: Meanings =
        &[("web.enabled", "`false`: without the shop's pages for browsers ([storefront.md](storefront.md))")];

    fn read(_: &mut Reader<'_>) -> Result<Self, Refused> {
        Ok(Self)
    }
}

/// The pages of the bookstore; without the bookstore there are none.
#[derive(Debug)]
pub struct WebService {
    pages: Option<(Shop, Live)>,
}

impl Open for WebService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Shop;
    const ENABLED: Option<&'static str> = Some("web.enabled");
    // Whether others may use the scope is decided for the bookstore, without which there are no pages.
    const IS_ON_MAIN_PORT: bool = false;

    async fn open(_: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let pages = host.handles.get::<Bookstore>().map(|store| {
            let live = Live::new(store.clone());
            let auth = host.auth.authenticator(Some(Scope::Shop), host.address);
            (Shop::new(store, live.clone(), auth, host.is_tls), live)
        });
        Ok(Self { pages })
    }
}

impl Service for WebService {
    fn http(&self) -> Site {
        let front = self.pages.as_ref().map(|(shop, _)| Front { folder: "/shop", router: routes::router(shop) });
        Site { front, ..Site::default() }
    }

    fn start(&mut self, serving: &mut Serving) -> Result<(), Error> {
        if let Some((_, live)) = &self.pages {
            serving.run_until_stopped(live.clone().run());
        }
        Ok(())
    }

    fn drain(&self) {
        if let Some((_, live)) = &self.pages {
            live.end();
        }
    }
}
