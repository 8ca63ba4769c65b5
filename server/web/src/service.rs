//! The pages as a service of a server. Has no rules.

use bookstore::Bookstore;
use hosting::{Error, Front, Host, Meanings, Open, Reader, Refused, Service, Serving, Site, access::Scope};
use operate::Operate;

use crate::{
    live::Live,
    room::{self, Room, Services},
    routes,
    shop::Shop,
};

/// The settings: there are none but `web.enabled`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings;

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[(
        "web.enabled",
        "`false`: without the pages for browsers, [the shop's](storefront.md) and [the operator's](operate/room.md)",
    )];

    fn read(_: &mut Reader<'_>) -> Result<Self, Refused> {
        Ok(Self)
    }
}

/// The pages of the bookstore; without the bookstore there are none.
#[derive(Debug)]
pub struct WebService {
    pages: Option<Pages>,
}

#[derive(Debug)]
struct Pages {
    shop: Shop,
    live: Live,
    /// `None` without a view of the server.
    room: Option<Room>,
}

impl Open for WebService {
    type Settings = Settings;
    const SCOPE: Scope = Scope::Shop;
    const ENABLED: Option<&'static str> = Some("web.enabled");
    // Whether others may use the scope is decided for the bookstore, without which there are no pages.
    const IS_ON_MAIN_PORT: bool = false;

    async fn open(_: Settings, host: &mut Host<'_>) -> Result<Self, Error> {
        let handles = &host.handles;
        let pages = handles.get::<Bookstore>().map(|store| {
            let live = Live::new(store.clone());
            let door = |scope| host.auth.authenticator(Some(scope), host.address);
            let room = handles.get::<Operate>().map(|operate| {
                let services = Services {
                    store: store.clone(),
                    kv: handles.get(),
                    records: handles.get(),
                    games: handles.get(),
                    tasks: handles.get(),
                    settings: handles.get().unwrap_or_default(),
                    operate,
                };
                Room::new(services, door(Scope::Admin), host.is_tls, host.address.port())
            });
            Pages { shop: Shop::new(store, live.clone(), door(Scope::Shop), host.is_tls), live, room }
        });
        Ok(Self { pages })
    }
}

impl Service for WebService {
    fn http(&self) -> Site {
        let Some(pages) = &self.pages else { return Site::default() };
        let shop = Front { name: "Shop", folder: "/shop", router: routes::router(&pages.shop) };
        let room =
            pages.room.as_ref().map(|room| Front { name: "Operators", folder: "/admin", router: room::router(room) });
        Site { fronts: [shop].into_iter().chain(room).collect(), ..Site::default() }
    }

    fn start(&mut self, serving: &mut Serving) -> Result<(), Error> {
        if let Some(pages) = &self.pages {
            serving.run_until_stopped(pages.live.clone().run());
            if let Some(room) = &pages.room {
                serving.run_until_stopped(room.live().clone().run());
            }
        }
        Ok(())
    }

    fn drain(&self) {
        if let Some(pages) = &self.pages {
            pages.live.end();
            if let Some(room) = &pages.room {
                room.live().end();
            }
        }
    }
}
